// The sharding rule of every op against the undivided call, on simulated ranks.
#include <gtest/gtest.h>

#include "tests/support/shard_simulator.h"

namespace tutti {
namespace {

using testing::ShardSimulator;

bool is_small(const OpDef& op, const Sample& sample) {
  int64_t elements = 0;
  for (const Tensor& t : sample.inputs) elements += t.numel();
  return elements <= 3000 && cost_of({op, sample.inputs, sample.attrs}).flops <= 100000;
}

std::vector<const OpDef*> ops_with_rules() {
  std::vector<const OpDef*> result;
  for (const OpDef* op : op_table()) {
    if (op->sharding && op->samples && op->reference) result.push_back(op);
  }
  return result;
}

class ShardingContract : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(ShardingContract, PartsOfEveryRowMakeTheWhole) {
  const OpDef& op = *GetParam();
  int samples = 0;
  for (const Sample& sample : op.samples()) {
    if (!is_small(op, sample)) continue;
    ShardSimulator simulator(op, sample);
    const std::string failure = simulator.check(op.sharding({op, sample.inputs, sample.attrs}));
    EXPECT_EQ(failure, "");
    ++samples;
  }
  EXPECT_GT(samples, 0) << op.name << " has no sample that is small enough for the simulator";
}

INSTANTIATE_TEST_SUITE_P(EveryOp, ShardingContract, ::testing::ValuesIn(ops_with_rules()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(ShardingContract, EveryOpHasARule) {
  for (const OpDef* op : op_table()) EXPECT_NE(op->sharding, nullptr) << op->name << " says nothing about sharding";
}

// ---- negative controls: the simulator notices wrong rules -----------------------------------------------------------

// Whether some sample of `op` refutes the rule; samples it does not fit are left out.
bool is_refuted(const char* name, const std::string& rule, bool ignore_even = false) {
  const OpDef& op = find_op(name);
  for (const Sample& sample : op.samples()) {
    try {
      if (!ShardSimulator(op, sample).check(rule, ignore_even).empty()) return true;
    } catch (const UsageError&) {
    }
  }
  return false;
}

TEST(ShardSimulatorRefutes, ASortedDimThatIsSharded) { EXPECT_TRUE(is_refuted("sort", "#x[a] -> v[a] #i[a]")); }
TEST(ShardSimulatorRefutes, AMedianOfMedians) {
  EXPECT_TRUE(is_refuted("median_dim", "#x[ab] -> v[a] #i[a] | max{b} |"));
}
TEST(ShardSimulatorRefutes, AFlippedDimThatIsSharded) { EXPECT_TRUE(is_refuted("flip", "x[ab] -> y[ab]")); }
TEST(ShardSimulatorRefutes, ASoftmaxRowThatIsSharded) { EXPECT_TRUE(is_refuted("softmax", "#x[ab] -> y[ab]")); }
TEST(ShardSimulatorRefutes, AScannedDimThatIsSharded) { EXPECT_TRUE(is_refuted("cumsum", "x[ab] -> y[ab]")); }
TEST(ShardSimulatorRefutes, AScatteredDimThatIsSharded) {
  EXPECT_TRUE(is_refuted("scatter", "x[ab] #i[YZ] s[YZ] -> y[ab]"));
}
TEST(ShardSimulatorRefutes, ACurveThatIsCalledLinear) { EXPECT_TRUE(is_refuted("exp", "x[abc] -> y[abc] | | lin")); }
TEST(ShardSimulatorRefutes, AFallingFunctionThatIsCalledRising) {
  EXPECT_TRUE(is_refuted("neg", "x[abc] -> y[abc] | | up"));
}
TEST(ShardSimulatorRefutes, AProductOfTwoSums) { EXPECT_TRUE(is_refuted("mul", "x[abc] y[abc] -> z[abc] | | lin")); }
TEST(ShardSimulatorRefutes, AMaximumOfASum) { EXPECT_TRUE(is_refuted("add", "x[abc] y[abc] -> z[abc] | | +max")); }
TEST(ShardSimulatorRefutes, APaddedConstantUnderASum) { EXPECT_TRUE(is_refuted("pad", "x[AB] -> y[AB] | | id")); }
TEST(ShardSimulatorRefutes, ASumThatIsCalledAMaximum) {
  EXPECT_TRUE(is_refuted("expand_backward", "g[ab] -> y[a1] | max{b} |"));
}
TEST(ShardSimulatorRefutes, AnUnevenMajorFactor) { EXPECT_TRUE(is_refuted("view", "x[abc] -> y[(ab)c] | | id", true)); }
TEST(ShardSimulatorRefutes, ASumThatIsCalledExact) {
  EXPECT_TRUE(is_refuted("expand_backward", "g[ab] -> y[a1] | sum{b} | | sum{b}"));
}
TEST(ShardSimulatorRefutes, AnIndexThatIsNotMasked) {
  EXPECT_TRUE(is_refuted("embedding", "W[vw] #I[ab] -> Y[abw] | sum{v} |"));
}

}  // namespace
}  // namespace tutti
