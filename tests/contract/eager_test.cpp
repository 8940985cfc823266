// Every op computes what its reference says, with bits that do not depend on strides, threads or the run.
#include "tests/contract/support/op_cases.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

class Eager : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, Eager, ::testing::ValuesIn(all_ops()), name_of_op);

TEST_P(Eager, AgreesWithTheReference) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    const std::vector<Tensor> actual = run_op(op, sample);
    const std::vector<Tensor> expected = reference_on(op, dense_copies(sample.inputs), sample.attrs);
    for (size_t k = 0; k < actual.size(); ++k)
      EXPECT_EQ(difference(actual[k], expected[k], op.tolerance), "") << "output " << k;
  }
}

TEST_P(Eager, HasTheInferredSizesAndDtypes) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    OutputMetas metas;
    op.infer({op, sample.inputs, sample.attrs}, metas);
    ASSERT_EQ(metas.count, op.num_outputs);
    const std::vector<Tensor> outputs = run_op(op, sample);
    for (size_t k = 0; k < outputs.size(); ++k) {
      EXPECT_EQ(outputs[k].dtype(), metas.meta[k].dtype);
      EXPECT_EQ(outputs[k].extents(), concrete(metas.meta[k].sizes));
    }
  }
}

TEST_P(Eager, RepeatsItsBits) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    const std::vector<Tensor> first = run_op(op, sample), second = run_op(op, sample);
    for (size_t k = 0; k < first.size(); ++k) EXPECT_EQ(bit_difference(second[k], first[k]), "") << "output " << k;
  }
}

TEST_P(Eager, HasTheSameBitsOnOneThreadAndOnTwo) {
  const OpDef& op = *GetParam();
  RankContext& context = RankContext::current();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    context.set_threads(1);
    const std::vector<Tensor> one = run_op(op, sample);
    context.set_threads(2);
    const std::vector<Tensor> two = run_op(op, sample);
    for (size_t k = 0; k < one.size(); ++k) EXPECT_EQ(bit_difference(two[k], one[k]), "") << "output " << k;
  }
  context.set_threads(0);
}

TEST_P(Eager, LeavesWhatItDoesNotWrite) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    const std::vector<Tensor> before = dense_copies(sample.inputs);
    const std::vector<Tensor> outputs = run_op(op, sample);
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(bit_difference(sample.inputs[i], before[i]), "") << "input " << i;
  }
}

// Views are about strides; everything else must not notice them.
class EagerStrides : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, EagerStrides,
                         ::testing::ValuesIn(ops_where([](const OpDef& op) { return op.view == nullptr; })),
                         name_of_op);

TEST_P(EagerStrides, GapsBetweenElementsDoNotChangeTheBits) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    const std::vector<Tensor> dense = run_on(op, dense_copies(sample.inputs), sample.attrs);
    const std::vector<Tensor> gapped = run_on(op, gapped_copies(sample.inputs), sample.attrs);
    for (size_t k = 0; k < dense.size(); ++k) EXPECT_EQ(bit_difference(gapped[k], dense[k]), "") << "output " << k;
  }
}

// Pointwise ops accept every size; the others, and those over indices, say in their samples which they take.
bool is_pointwise(const OpDef& op) {
  return op.recipe.build != nullptr && op.recipe.kind == codegen::LoopKind::pointwise && op.recipe.pick == nullptr &&
         op.local_attrs == nullptr && op.num_inputs > 0;
}

class EagerSizes : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryPointwiseOp, EagerSizes, ::testing::ValuesIn(ops_where(is_pointwise)), name_of_op);

// The sample with the first dim of every input cut to `size`, numbers as they are; inputs of different sizes have no
// common cut.
bool cut_to(Sample& sample, int64_t size) {
  const Extents sizes = sample.inputs[0].extents();
  for (Tensor& t : sample.inputs) {
    if (t.ndim() == 0 && sizes.ndim() > 0) continue;
    if (t.ndim() == 0 || t.extents() != sizes || sizes[0] < size) return false;
    Extents cut = sizes;
    cut[0] = size;
    t = t.view_as(cut, t.strides(), t.offset());
  }
  return true;
}

TEST_P(EagerSizes, NoneAndOneAreSizesLikeOthers) {
  const OpDef& op = *GetParam();
  int tested = 0;
  for (const int64_t size : {0, 1}) {
    for (Sample sample : op.samples()) {
      if (!cut_to(sample, size)) continue;
      SCOPED_TRACE(fmt::format("{} cut to {}", sample.name, size));
      const std::vector<Tensor> actual = run_op(op, sample);
      const std::vector<Tensor> expected = reference_on(op, dense_copies(sample.inputs), sample.attrs);
      for (size_t k = 0; k < actual.size(); ++k) EXPECT_EQ(difference(actual[k], expected[k], op.tolerance), "");
      ++tested;
    }
  }
  EXPECT_GT(tested, 0);
}

}  // namespace
}  // namespace tutti
