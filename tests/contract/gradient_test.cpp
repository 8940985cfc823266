// Every gradient against central differences of the reference, in f64.
//
// f(x) = <w, output k> for a fixed w, each output by itself; its derivative along a random direction d is (f(x + h d) -
// f(x - h d)) / 2h, and must be <vjp(w), d>. What the op does not ask to save is undefined in the call, as on the tape.
#include <cmath>

#include "tests/contract/support/op_cases.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

constexpr int kDirections = 3;
constexpr double kStep = 1e-6;
constexpr double kAccepted = 2e-6;  // of the largest term; the differences lose half of the 53 bits
constexpr int64_t kLargest = 4000;  // elements of a sample

double inner(const Tensor& a, const Tensor& b) {
  double total = 0;
  const Tensor both[] = {a, b};
  facets::for_each_element(a.extents(), both, [&](int64_t, const int64_t* at) {
    total += facets::read_double(a, at[0]) * facets::read_double(b, at[1]);
  });
  return total;
}

// x + h d
Tensor moved(const Tensor& x, const Tensor& d, double h) {
  Tensor y = Tensor::empty(x.extents(), x.dtype());
  const Tensor both[] = {x, d};
  facets::for_each_element(x.extents(), both, [&](int64_t i, const int64_t* at) {
    facets::write_double(y, i, facets::read_double(x, at[0]) + h * facets::read_double(d, at[1]));
  });
  return y;
}

Tensor converted(const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty(x.extents(), dtype);
  facets::for_each_element(x.extents(), {&x, 1}, [&](int64_t i, const int64_t* at) {
    facets::write_double(y, i, facets::read_double(x, at[0]));
  });
  return y;
}

bool is_finite(const Tensor& t) {
  bool finite = true;
  facets::for_each_element(t.extents(), {&t, 1}, [&](int64_t, const int64_t* at) {
    finite = finite && std::isfinite(facets::read_double(t, at[0]));
  });
  return finite;
}

// The sample with its float inputs in f64; false when the op then has no finite f64 result (a fixed result type, an
// edge). Narrow floats are left out: their few values meet ties and jumps, where a function has no derivative.
bool widen(const OpDef& op, Sample& sample) {
  bool any_float = false;
  int64_t elements = 0;
  std::vector<Tensor> inputs = dense_copies(sample.inputs);
  for (Tensor& t : inputs) {
    elements += t.numel();
    if (!is_floating(t.dtype())) continue;
    if (itemsize(t.dtype()) < itemsize(DType::f32)) return false;
    any_float = true;
    t = converted(t, DType::f64);
    if (!is_finite(t)) return false;
  }
  if (!any_float || elements > kLargest) return false;
  sample.inputs = std::move(inputs);
  OutputMetas metas;
  op.infer({op, sample.inputs, sample.attrs}, metas);
  return metas.meta[0].dtype == DType::f64 && is_finite(reference_on(op, dense_copies(sample.inputs), sample.attrs)[0]);
}

// The cotangents of all float inputs for the cotangent `grad` of output k.
std::vector<Tensor> vjp_of(const OpDef& op, const Sample& sample, const Tensor& grad, size_t k = 0) {
  const Gradient& gradient = op.gradient;
  std::vector<OutputMeta> metas;
  std::vector<Tensor> inputs = sample.inputs, outputs = run_on(op, dense_copies(sample.inputs), sample.attrs);
  uint32_t needed = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    metas.push_back({inputs[i].dtype(), inputs[i].sizes()});
    if (is_floating(inputs[i].dtype()) && !(gradient.constant_inputs >> i & 1)) needed |= 1u << i;
    if (!(gradient.saves_inputs >> i & 1)) inputs[i] = {};
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!(gradient.saves_outputs >> o & 1)) outputs[o] = {};
  }
  std::vector<Tensor> grads(outputs.size()), result(inputs.size());
  grads[k] = grad;
  for (std::vector<Tensor>* list : {&inputs, &outputs, &grads}) *list = moved_to(contract_device(), *list);
  gradient.vjp({op, inputs, outputs, grads, sample.attrs, metas, needed}, result);
  return moved_to(kCpu, result);
}

class GradientContract : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, GradientContract,
                         ::testing::ValuesIn(ops_where([](const OpDef& op) { return op.gradient.vjp != nullptr; })),
                         name_of_op);

// <vjp(w), d> of output k against the differences, for every input.
void expect_differences(const OpDef& op, const Sample& sample, size_t k, const Tensor& w,
                        const std::vector<Tensor>& grads) {
  const auto f = [&](size_t i, const Tensor& d, double h) {
    std::vector<Tensor> inputs = dense_copies(sample.inputs);
    inputs[i] = moved(inputs[i], d, h);
    return inner(reference_on(op, inputs, sample.attrs)[k], w);
  };
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Tensor& x = sample.inputs[i];
    if (!is_floating(x.dtype()) || (op.gradient.constant_inputs >> i & 1)) continue;
    if (grads[i].defined()) {
      ASSERT_EQ(grads[i].extents(), x.extents()) << "input " << i;
    }
    for (int direction = 0; direction < kDirections; ++direction) {
      const Tensor d = facets::sample_tensor(97 + static_cast<uint64_t>(direction), x.extents(), DType::f64, -1, 1);
      const double up = f(i, d, kStep), down = f(i, d, -kStep);
      const double expected = (up - down) / (2 * kStep);
      const double actual = grads[i].defined() ? inner(grads[i], d) : 0.0;
      EXPECT_NEAR(actual, expected, kAccepted * std::max({1.0, std::fabs(expected), std::fabs(up) * 1e-2}))
          << "input " << i;
    }
  }
}

TEST_P(GradientContract, AgreesWithDifferencesOfTheReference) {
  const OpDef& op = *GetParam();
  int tested = 0;
  for (Sample sample : op.samples()) {
    if (!widen(op, sample)) continue;
    SCOPED_TRACE(sample.name);
    ++tested;
    const Tensor output = reference_on(op, dense_copies(sample.inputs), sample.attrs)[0];
    const Tensor w = facets::sample_tensor(91, output.extents(), DType::f64, -1, 1);
    expect_differences(op, sample, 0, w, vjp_of(op, sample, w));
  }
  EXPECT_GT(tested, 0) << op.name << " has no sample with a finite f64 result";
}

// A gradient that is missing without a word would be taken for zero.
TEST_P(GradientContract, OfEveryOtherResultAgreesOrIsRefused) {
  const OpDef& op = *GetParam();
  if (op.num_outputs < 2) GTEST_SKIP() << "one result";
  for (Sample sample : op.samples()) {
    if (!widen(op, sample)) continue;
    const std::vector<Tensor> outputs = reference_on(op, dense_copies(sample.inputs), sample.attrs);
    for (size_t k = 1; k < outputs.size(); ++k) {
      if (!is_floating(outputs[k].dtype()) || !is_finite(outputs[k])) continue;
      SCOPED_TRACE(fmt::format("{}, result {}", sample.name, k));
      const Tensor w = facets::sample_tensor(91, outputs[k].extents(), outputs[k].dtype(), -1, 1);
      std::vector<Tensor> grads;
      try {
        grads = vjp_of(op, sample, w, k);
      } catch (const UsageError& refusal) {
        EXPECT_GT(std::string(refusal.what()).size(), 20u) << refusal.what();  // it names the public function
        continue;
      }
      expect_differences(op, sample, k, w, grads);
    }
  }
}

// Partial values travel in f32 (numerics contract, N4): a cotangent may be wider than the value it belongs to.
TEST_P(GradientContract, TakesCotangentsThatAreWiderThanTheValue) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    OutputMetas metas;
    op.infer({op, sample.inputs, sample.attrs}, metas);
    const DType dtype = metas.meta[0].dtype;
    if (dtype != DType::bf16 && dtype != DType::f16) continue;
    SCOPED_TRACE(sample.name);
    const Tensor wide = facets::sample_tensor(91, concrete(metas.meta[0].sizes), DType::f32, -1, 1);
    const std::vector<Tensor> grads = vjp_of(op, sample, wide);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      const Tensor& x = sample.inputs[i];
      EXPECT_EQ(grads[i].extents(), x.extents()) << "input " << i;
      EXPECT_TRUE(grads[i].dtype() == x.dtype() || grads[i].dtype() == DType::f32) << name_of(grads[i].dtype());
    }
  }
}

}  // namespace
}  // namespace tutti
