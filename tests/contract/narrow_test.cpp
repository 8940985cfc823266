// Every op on narrow floats: the forward against its reference, and the gradient of bf16 and f16 leaves, which is f32,
// against that of the same values in f64.
#include <algorithm>
#include <cmath>

#include "tests/contract/support/op_cases.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

constexpr int64_t kLargest = 4000;  // elements of a sample

Tensor converted(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.extents(), dtype);
  facets::for_each_element(x.extents(), {&x, 1}, [&](int64_t i, const int64_t* at) {
    facets::write_double(y, i, facets::read_double(x, at[0]));
  });
  return y;
}

double largest(const Tensor& t) {
  double most = 0;
  for (const double v : facets::values(t, t.extents()))
    most = std::isfinite(v) ? std::max(most, std::fabs(v)) : INFINITY;
  return most;
}

// The attrs with the dtype `to` where they name `from` as the dtype of a result.
Attrs with_results_in(DType from, DType to, const Attrs& attrs) {
  std::string text = attrs.to_string();
  for (const FieldRecord& field : attrs.empty() ? std::span<const FieldRecord>() : attrs.type()->fields) {
    if (field.kind != FieldKind::output_dtype) continue;
    const std::string before = fmt::format("{}: {}", field.name, name_of(from));
    if (const size_t at = text.find(before); at != std::string::npos)
      text.replace(at, before.size(), fmt::format("{}: {}", field.name, name_of(to)));
  }
  return attrs.empty() ? attrs : Attrs::from_text(*attrs.type(), text);
}

// The sample with its f32 inputs and results in another float type; false when it has none, or is large.
bool convert(Sample& sample, DType dtype) {
  const Attrs attrs = with_results_in(DType::f32, dtype, sample.attrs);
  bool any = !(attrs == sample.attrs);
  sample.attrs = attrs;
  int64_t elements = 0;
  std::vector<Tensor> inputs = dense_copies(sample.inputs);
  for (Tensor& t : inputs) {
    elements += t.numel();
    if (is_floating(t.dtype()) && t.dtype() != DType::f32) return false;
    if (t.dtype() != DType::f32) continue;
    any = true;
    t = converted(t, dtype);
  }
  sample.inputs = std::move(inputs);
  return any && elements <= kLargest;
}

// Whether the op takes the call.
bool takes(const OpDef& op, const Sample& sample, OutputMetas& metas) {
  try {
    op.infer({op, sample.inputs, sample.attrs}, metas);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

class Narrow : public ::testing::TestWithParam<const OpDef*> {};
// Whether a sample takes f32 operands or has such a result. Every process of a test registers all tests, so that no
// condition of a suite may make the samples of all ops.
bool has_floats(const OpDef& op) {
  const auto is_f32 = [](const Tensor& t) { return t.dtype() == DType::f32; };
  return std::ranges::any_of(op.samples(), [&](const Sample& s) {
    return std::ranges::any_of(s.inputs, is_f32) || !(with_results_in(DType::f32, DType::bf16, s.attrs) == s.attrs);
  });
}
// Without the ops that backward calls and those of codes, whose statistics and scales are f32 whatever the operands
// are, those that read values as bits, and those that are defined for f32 only: steps of optimizers over rows, whose
// parameters and states are f32, and the next float.
INSTANTIATE_TEST_SUITE_P(EveryOp, Narrow, ::testing::ValuesIn(ops_where([](const OpDef& op) {
                           const std::string_view name = op.name;
                           const bool is_of_codes = name.find("_codes") != name.npos || name == "quantized_sdpa" ||
                                                    name.starts_with("scaled_linear") || name == "weight_only_linear";
                           const bool steps_rows = name.ends_with("_rows_step_") ||
                                                   (name.starts_with("table_batched_") && name.ends_with("_"));
                           return !name.ends_with("_backward") && !is_of_codes && name != "bitcast" && !steps_rows &&
                                  !name.starts_with("nextafter");
                         })),
                         name_of_op);

TEST_P(Narrow, AgreesWithTheReference) {
  const OpDef& op = *GetParam();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    int tested = 0;
    for (Sample sample : op.samples()) {
      OutputMetas metas;
      if (!convert(sample, dtype) || !takes(op, sample, metas)) continue;
      SCOPED_TRACE(fmt::format("{} {}", sample.name, name_of(dtype)));
      const std::vector<Tensor> actual = run_on(op, dense_copies(sample.inputs), sample.attrs);
      const std::vector<Tensor> expected = reference_on(op, dense_copies(sample.inputs), sample.attrs);
      for (size_t k = 0; k < actual.size(); ++k)
        EXPECT_EQ(difference(actual[k], expected[k], op.tolerance), "") << "output " << k;
      ++tested;
    }
    EXPECT_TRUE(tested > 0 || !has_floats(op)) << op.name << " has no sample in " << name_of(dtype);
  }
}

class NarrowGradient : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, NarrowGradient,
                         ::testing::ValuesIn(ops_where([](const OpDef& op) { return op.gradient.vjp != nullptr; })),
                         name_of_op);

// The gradients of the inputs, as leaves of the tape, for the cotangent `w` of output 0.
std::vector<Tensor> gradients_of(const OpDef& op, const Sample& sample, const Tensor& w) {
  std::vector<Tensor> leaves = dense_copies(sample.inputs), outputs(static_cast<size_t>(op.num_outputs)), grads;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (is_floating(leaves[i].dtype()) && !(op.gradient.constant_inputs >> i & 1)) requires_grad_(leaves[i]);
  }
  apply(op, leaves, sample.attrs, outputs);
  backward(outputs[0], w);
  for (const Tensor& leaf : leaves) grads.push_back(grad_of(leaf));
  return grads;
}

TEST_P(NarrowGradient, IsF32AndThatOfTheSameValuesInF64) {
  const OpDef& op = *GetParam();
  if (op.writes[0] >= 0) GTEST_SKIP() << "it writes in place";
  for (const DType dtype : {DType::bf16, DType::f16}) {
    int tested = 0;
    for (Sample sample : op.samples()) {
      OutputMetas metas, wide_metas;
      if (!convert(sample, dtype) || !takes(op, sample, metas) || !is_floating(metas.meta[0].dtype)) continue;
      if (std::ranges::none_of(sample.inputs, [&](const Tensor& x) { return x.dtype() == dtype; }))
        continue;  // a result in it of other operands
      Sample wide = sample;
      wide.attrs = with_results_in(dtype, DType::f64, sample.attrs);
      for (Tensor& t : wide.inputs) {
        if (t.dtype() == dtype) t = converted(t, DType::f64);
      }
      if (!takes(op, wide, wide_metas) || wide_metas.meta[0].dtype != DType::f64) continue;
      if (!std::isfinite(largest(run_on(op, dense_copies(wide.inputs), wide.attrs)[0]))) continue;
      SCOPED_TRACE(fmt::format("{} {}", sample.name, name_of(dtype)));
      const Tensor w =
          converted(facets::sample_tensor(91, concrete(metas.meta[0].sizes), DType::f32, -1, 1), metas.meta[0].dtype);
      const std::vector<Tensor> actual = gradients_of(op, sample, w),
                                expected = gradients_of(op, wide, converted(w, DType::f64));
      // Values in between are rounded to the narrow type, and cotangents cross the op in it.
      const double accepted = dtype == DType::bf16 ? 0.05 : 0.008;
      for (size_t i = 0; i < actual.size(); ++i) {
        if (!actual[i].defined() || !expected[i].defined()) {
          EXPECT_EQ(actual[i].defined(), expected[i].defined()) << "input " << i;
          continue;
        }
        EXPECT_EQ(actual[i].dtype(), DType::f32) << "input " << i;
        const double scale = std::max(1.0, largest(expected[i]));
        if (!std::isfinite(scale)) continue;
        const std::vector<double> a = facets::values(actual[i], actual[i].extents()),
                                  b = facets::values(expected[i], expected[i].extents());
        for (size_t e = 0; e < a.size(); ++e)
          ASSERT_NEAR(a[e], b[e], accepted * scale) << "input " << i << ", element " << e;
      }
      ++tested;
    }
    EXPECT_GT(tested, 0) << op.name << " has no sample in " << name_of(dtype);
  }
}

}  // namespace
}  // namespace tutti
