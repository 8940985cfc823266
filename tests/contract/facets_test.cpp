// Every op says everything about itself.
#include <cmath>
#include <set>

#include "tests/contract/support/op_cases.h"
#include "tutti/core/sharding_rule.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

class Facets : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, Facets, ::testing::ValuesIn(all_ops()), name_of_op);

TEST_P(Facets, ShapeRuleReferenceShardingAndSamplesExist) {
  const OpDef& op = *GetParam();
  EXPECT_NE(op.infer, nullptr);
  EXPECT_NE(op.reference, nullptr);
  EXPECT_NE(op.sharding, nullptr);
  ASSERT_NE(op.samples, nullptr);
  EXPECT_FALSE(op.samples().empty());
}

TEST_P(Facets, ExactlyOneWayToRunExists) {
  const OpDef& op = *GetParam();
  EXPECT_EQ((op.recipe.build != nullptr) + (op.kernel != nullptr) + (op.view != nullptr), 1);
}

TEST_P(Facets, AGradientOrTheReasonForNoneExists) {
  const Gradient& gradient = GetParam()->gradient;
  EXPECT_NE(gradient.vjp != nullptr, gradient.none != nullptr);
}

TEST_P(Facets, SamplesHaveTheInputsAndDistinctNames) {
  const OpDef& op = *GetParam();
  std::set<std::string> names;
  for (const Sample& sample : op.samples()) {
    EXPECT_TRUE(names.insert(sample.name).second) << "two samples are named " << sample.name;
    if (op.num_inputs >= 0) {
      EXPECT_EQ(static_cast<int>(sample.inputs.size()), op.num_inputs) << sample.name;
    }
  }
}

TEST_P(Facets, ShardingRulesParseAndFitTheSizes) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    const OpCall call{op, sample.inputs, sample.attrs};
    const std::string text = op.sharding(call);
    OutputMetas metas;
    op.infer(call, metas);
    std::vector<Extents> inputs, outputs;
    for (const Tensor& t : sample.inputs) inputs.push_back(t.extents());
    for (int k = 0; k < metas.count; ++k) outputs.push_back(concrete(metas.meta[k].sizes));
    EXPECT_NO_THROW(ShardingRule::parse(text).rows(inputs, outputs)) << text;
  }
}

TEST_P(Facets, CostsAreFiniteAndNotNegative) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    const Cost cost = cost_of({op, sample.inputs, sample.attrs});
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0) << sample.name;
    EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0) << sample.name;
  }
}

TEST(OpTable, NamesAreDistinct) {
  std::set<std::string> names;
  for (const OpDef* op : op_table()) EXPECT_TRUE(names.insert(op->name).second) << op->name;
}

TEST(OpTable, AnUnknownNameNamesTheNearest) {
  try {
    find_op("expp");
    FAIL() << "find_op accepted an unknown name";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'exp'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti
