// The gradient of an operand that was broadcast is a sum, whose terms are not rounded to the operand's narrow type on
// their way (numerics contract, N4): every op with broadcasting, in bf16, against the sum of its gradients in f64.
#include <cmath>

#include "tests/contract/support/op_cases.h"
#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

constexpr int64_t kTerms = 1000, kWidth = 4;

// Values of `like`, over and over, as a tensor of other sizes.
Tensor filled_from(const Tensor& like, const Extents& sizes, DType dtype) {
  const std::vector<double> values = facets::values(like, like.extents());
  Tensor t = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < t.numel(); ++i)
    facets::write_double(t, i, values[static_cast<size_t>(i * 31 % like.numel())]);
  return t;
}
Tensor converted(const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty(x.extents(), dtype);
  const std::vector<double> values = facets::values(x, x.extents());
  for (int64_t i = 0; i < y.numel(); ++i) facets::write_double(y, i, values[static_cast<size_t>(i)]);
  return y;
}
Tensor repeated(const Tensor& row) {
  Tensor y = Tensor::empty({kTerms, kWidth}, row.dtype());
  for (int64_t i = 0; i < y.numel(); ++i) facets::write_double(y, i, facets::read_double(row, i % kWidth));
  return y;
}

std::vector<Tensor> gradients(const OpDef& op, std::vector<Tensor> inputs, const Attrs& attrs,
                              const Tensor& cotangent) {
  std::vector<OutputMeta> metas;
  std::vector<Tensor> outputs = run_on(op, dense_copies(inputs), attrs);
  uint32_t needed = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    metas.push_back({inputs[i].dtype(), inputs[i].sizes()});
    if (is_floating(inputs[i].dtype())) needed |= 1u << i;
    if (!(op.gradient.saves_inputs >> i & 1)) inputs[i] = {};
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!(op.gradient.saves_outputs >> k & 1)) outputs[k] = {};
  }
  std::vector<Tensor> grads(outputs.size()), result(inputs.size());
  grads[0] = cotangent;
  op.gradient.vjp({op, inputs, outputs, grads, attrs, metas, needed}, result);
  return result;
}

// The sample with its inputs as [kTerms, kWidth] in bf16 (conditions as they are), input `narrow` and those with fewer
// dims in the sample as [kWidth]; none if the op does not take that.
std::vector<Tensor> broadcast_inputs(const OpDef& op, const Sample& sample, size_t narrow) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Tensor& t = sample.inputs[i];
    if (t.numel() == 0 || (!is_floating(t.dtype()) && t.dtype() != DType::boolean)) return {};
    const bool is_row = i == narrow || t.ndim() < sample.inputs[0].ndim();
    inputs.push_back(filled_from(t, is_row ? Extents{kWidth} : Extents{kTerms, kWidth},
                                 is_floating(t.dtype()) ? DType::bf16 : t.dtype()));
  }
  try {
    OutputMetas metas;
    op.infer({op, inputs, sample.attrs}, metas);
    if (metas.meta[0].sizes != Shape{kTerms, kWidth} || !is_floating(metas.meta[0].dtype)) return {};
    if (op.check) op.check({op, inputs, sample.attrs});
  } catch (const Error&) {
    return {};
  }
  return inputs;
}

// Loops over elements or rows some of whose samples have inputs of different sizes.
bool broadcasts(const OpDef& op) {
  if (op.gradient.vjp == nullptr || op.recipe.build == nullptr) return false;
  for (const Sample& sample : op.samples()) {
    for (const Tensor& t : sample.inputs) {
      if (t.extents() != sample.inputs[0].extents()) return true;
    }
  }
  return false;
}

TEST(BroadcastContract, SumsOfAThousandTermsAreRoundedOnce) {
  std::vector<std::string> tested;
  for (const OpDef* op : ops_where(broadcasts)) {
    const std::vector<Sample> samples = op->samples();
    for (size_t i = 0; i < samples.front().inputs.size(); ++i) {
      std::vector<Tensor> inputs;
      const Sample* used = nullptr;
      for (const Sample& sample : samples) {
        if (sample.inputs.size() <= i || !is_floating(sample.inputs[i].dtype()) ||
            (op->gradient.constant_inputs >> i & 1))
          continue;
        inputs = broadcast_inputs(*op, sample, i);
        used = &sample;
        if (!inputs.empty()) break;
      }
      if (inputs.empty()) continue;
      SCOPED_TRACE(fmt::format("{} input {}", op->name, i));
      const Tensor cotangent =
          filled_from(facets::sample_tensor(7, {97}, DType::f32, -1, 2), {kTerms, kWidth}, DType::bf16);
      const Tensor narrow = gradients(*op, inputs, used->attrs, cotangent)[i];
      std::vector<Tensor> wide;
      for (const Tensor& t : inputs) wide.push_back(is_floating(t.dtype()) ? converted(t, DType::f64) : t);
      if (used->inputs[i].ndim() == used->inputs[0].ndim())
        wide[i] = repeated(wide[i]);  // else the op knows rows only, and sums in f64
      const Tensor terms = gradients(*op, wide, used->attrs, converted(cotangent, DType::f64))[i];
      if (!narrow.defined() && !terms.defined()) continue;  // a derivative that is 0 everywhere
      tested.push_back(fmt::format("{}/{}", op->name, i));
      ASSERT_EQ(narrow.extents(), Extents{kWidth});
      for (int64_t k = 0; k < kWidth; ++k) {
        double sum = 0, size = 0;
        for (int64_t n = 0; n < terms.numel() / kWidth; ++n) {
          const double term = facets::read_double(terms, n * kWidth + k);
          sum += term;
          size += std::fabs(term);
        }
        EXPECT_NEAR(facets::read_double(narrow, k), sum, 2e-6 * size) << "element " << k;
      }
    }
  }
  for (const char* one : {"add/1", "mul/0",   "mul/1",   "truediv/0", "truediv/1",    "remainder/1",  "fmod/1",
                          "pow/0", "pow/1",   "atan2/0", "atan2/1",   "maximum/1",    "fma/0",        "fma/1",
                          "fma/2", "where/1", "where/2", "copy_/1",   "layer_norm/1", "layer_norm/2", "rms_norm/1"})
    EXPECT_NE(std::find(tested.begin(), tested.end(), one), tested.end()) << one << " was not tested";
  RecordProperty("tested", fmt::format("{}", fmt::join(tested, " ")));
}

TEST(BroadcastContract, ProductsOverBatchesAreSummedBeforeTheyAreRounded) {
  const auto run = [](DType dtype) {
    Tensor a = requires_grad_(converted(facets::sample_tensor(1, {200, 1, 3, 4}, DType::bf16), dtype));
    Tensor b = requires_grad_(converted(facets::sample_tensor(2, {1, 100, 4, 5}, DType::bf16), dtype));
    const Tensor cotangents[] = {converted(facets::sample_tensor(3, {200, 100, 3, 5}, DType::bf16, -1, 2), dtype)};
    const Tensor outputs[] = {matmul(a, b)}, inputs[] = {a, b};
    return grad(outputs, inputs, cotangents);
  };
  const std::vector<Tensor> narrow = run(DType::bf16), wide = run(DType::f64);
  for (size_t i = 0; i < 2; ++i) {
    double largest = 0;
    for (int64_t k = 0; k < wide[i].numel(); ++k)
      largest = std::max(largest, std::fabs(facets::read_double(wide[i], k)));
    for (int64_t k = 0; k < wide[i].numel(); ++k)
      EXPECT_NEAR(facets::read_double(narrow[i], k), facets::read_double(wide[i], k), 5e-6 * largest)
          << "operand " << i << " element " << k;
  }
}

}  // namespace
}  // namespace tutti
