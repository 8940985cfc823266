// The contract of ops (tests/contract) for functional collectives, which need a group: every rank runs the same
// samples.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/message_of.h"
#include "tests/support/shard_simulator.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::comm {
namespace {

std::vector<const OpDef*> ops_with_samples() {
  std::vector<const OpDef*> result;
  for (const OpDef* op : functional::ops()) {
    if (op->samples != nullptr) result.push_back(op);
  }
  return result;
}

class FunctionalContract : public ::testing::TestWithParam<const OpDef*> {
 protected:
  // Runs `fn` on the samples, on every rank of a group of two.
  void for_each_sample(const std::function<void(const Sample&)>& fn) const {
    run_ranks(2, [&](ProcessGroup&) {
      const std::vector<Sample> samples = GetParam()->samples();
      TUTTI_CHECK(!samples.empty(), "{} has no samples", GetParam()->name);
      for (const Sample& sample : samples) fn(sample);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(EveryOp, FunctionalContract, ::testing::ValuesIn(ops_with_samples()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(FunctionalContract, KernelAndReferenceAgree) {
  const OpDef& op = *GetParam();
  for_each_sample([&](const Sample& sample) {
    std::vector<Tensor> results(static_cast<size_t>(op.num_outputs)), references(results.size());
    run_eager({op, sample.inputs, sample.attrs}, results);
    results = functional::wait_tensors(results);
    run_reference({op, sample.inputs, sample.attrs}, references);
    for (size_t k = 0; k < results.size(); ++k) {
      const Tensor &actual = results[k], &expected = references[k];
      TUTTI_CHECK(actual.extents() == expected.extents() && actual.dtype() == expected.dtype(), "{}: {} instead of {}",
                  sample.name, describe(actual), describe(expected));
      const std::vector<double> a = facets::values(actual, actual.extents()),
                                b = facets::values(expected, expected.extents());
      for (size_t i = 0; i < a.size(); ++i)
        TUTTI_CHECK(std::fabs(a[i] - b[i]) <= 1e-6 * std::fabs(b[i]), "{}: element {} is {}; expected {}", sample.name,
                    i, a[i], b[i]);
    }
  });
}

TEST_P(FunctionalContract, PartsOfEveryRowMakeTheWhole) {
  const OpDef& op = *GetParam();
  ASSERT_NE(op.sharding, nullptr);
  for_each_sample([&](const Sample& sample) {
    testing::ShardSimulator simulator(op, sample);
    const std::string failure = simulator.check(op.sharding({op, sample.inputs, sample.attrs}));
    TUTTI_CHECK(failure.empty(), "{}", failure);
  });
}

TEST_P(FunctionalContract, CostsAreFiniteAndNotNegative) {
  const OpDef& op = *GetParam();
  for_each_sample([&](const Sample& sample) {
    const Cost cost = cost_of({op, sample.inputs, sample.attrs});
    TUTTI_CHECK(std::isfinite(cost.flops) && cost.flops >= 0 && std::isfinite(cost.bytes) && cost.bytes >= 0,
                "{}: {} flops, {} bytes", sample.name, cost.flops, cost.bytes);
  });
}

TEST_P(FunctionalContract, TextWithAnUnknownReductionIsRefused) {
  const OpDef& op = *GetParam();
  for_each_sample([&](const Sample& sample) {
    std::string text = sample.attrs.to_string();
    const size_t at = text.find("reduce: ") + 8;
    text.replace(at, text.find(',', at) - at, "median");
    const std::string message = message_of([&] { Attrs::from_text(*sample.attrs.type(), text, op.name); });
    TUTTI_CHECK(message.starts_with(std::string(op.name) + ": attrs: field reduce: expected one of sum, avg, product"),
                "{}", message);
    TUTTI_CHECK(message.find("found \"median\"") != std::string::npos, "{}", message);
  });
}

TEST(FunctionalContract, TheOpsStandInTheOpTable) {
  std::set<std::string> names;
  for (const OpDef* op : op_table()) EXPECT_TRUE(names.insert(op->name).second) << op->name;
  for (const OpDef* op : functional::ops()) EXPECT_EQ(&find_op(op->name), op);
}

TEST(FunctionalContract, CoversEveryOpOfOneTensorThatIsNoMessage) {
  std::vector<std::string> without;
  for (const OpDef* op : functional::ops()) {
    if (op->samples == nullptr) without.push_back(op->name);
  }
  // Messages need two calls that fit; coalesced calls and their parts are made of bytes; a wait moves nothing.
  EXPECT_EQ(without, (std::vector<std::string>{"wait_tensor", "collective_part", "all_gather_single_coalesced",
                                               "all_reduce_coalesced", "isend", "irecv", "batch_isend_irecv",
                                               "reduce_scatter_single_coalesced"}));
}

}  // namespace
}  // namespace tutti::comm
