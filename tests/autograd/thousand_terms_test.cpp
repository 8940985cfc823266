// Gradients that are sums of a thousand terms, in bf16 against the same function in f64 on the same values: the sum is
// rounded once, if at all (numerics contract, N4).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

Tensor converted(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.extents(), dtype);
  const std::vector<double> values = facets::values(x, x.extents());
  for (int64_t i = 0; i < y.numel(); ++i) facets::write_double(y, i, values[static_cast<size_t>(i)]);
  return y;
}

using Function = std::function<Tensor(std::span<const Tensor>)>;

// The largest error of the gradient of each input, in parts of the largest element of the exact one.
void expect_exact_to(double tolerance, const Function& fn, const std::vector<Tensor>& inputs, const Extents& result) {
  const Tensor cotangent = facets::sample_tensor(77, result, DType::bf16, -1, 2);
  const auto run = [&](DType dtype) {
    std::vector<Tensor> leaves;
    for (const Tensor& t : inputs) leaves.push_back(requires_grad_(converted(t, dtype)));
    const Tensor outputs[] = {fn(leaves)}, cotangents[] = {converted(cotangent, dtype)};
    return grad(outputs, leaves, cotangents);
  };
  const std::vector<Tensor> narrow = run(DType::bf16), exact = run(DType::f64);
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(narrow[i].dtype(), DType::f32) << "input " << i;
    double largest = 0, error = 0;
    const std::vector<double> got = facets::values(narrow[i], narrow[i].extents()),
                              expected = facets::values(exact[i], exact[i].extents());
    for (size_t k = 0; k < got.size(); ++k) {
      largest = std::max(largest, std::fabs(expected[k]));
      error = std::max(error, std::fabs(got[k] - expected[k]));
    }
    EXPECT_LE(error, tolerance * largest) << "input " << i;
  }
}

TEST(ThousandTerms, OfRepeatedIndicesAreSummedInF32) {
  const Tensor x = facets::sample_tensor(1, {3, 4}, DType::bf16);
  std::vector<int64_t> rows(1000);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 7 == 0 ? 2 : 1;
  const Tensor line = Tensor::of(rows);
  expect_exact_to(2e-6, [&](std::span<const Tensor> in) { return index_select(in[0], 0, line); }, {x}, {1000, 4});
  const Tensor index = expand(reshape(line, {1000, 1}), {1000, 4});
  expect_exact_to(2e-6, [&](std::span<const Tensor> in) { return gather(in[0], 0, index); }, {x}, {1000, 4});
}

TEST(ThousandTerms, OfABiasOfAConvolutionAreSummedInF32) {
  const Tensor x = facets::sample_tensor(1, {10, 2, 102}, DType::bf16),
               w = facets::sample_tensor(2, {3, 2, 3}, DType::bf16), bias = facets::sample_tensor(3, {3}, DType::bf16);
  expect_exact_to(2e-6,
                  [&](std::span<const Tensor> in) {
                    return conv1d(converted(x, in[0].dtype()), converted(w, in[0].dtype()), in[0]);
                  },
                  {bias}, {10, 3, 100});
}

// 250 queries of four heads read the values of one head. Attention returns that gradient in the dtype of the values:
// the sum over queries and heads is rounded once.
TEST(ThousandTerms, OfAHeadThatAGroupSharesAreRoundedOnce) {
  const Tensor q = facets::sample_tensor(1, {1, 250, 4, 8}, DType::bf16),
               k = facets::sample_tensor(2, {1, 250, 1, 8}, DType::bf16),
               v = facets::sample_tensor(3, {1, 250, 1, 8}, DType::bf16);
  expect_exact_to(
      0x1p-8 + 5e-6,
      [&](std::span<const Tensor> in) { return sdpa(converted(q, in[0].dtype()), converted(k, in[0].dtype()), in[0]); },
      {v}, {1, 250, 4, 8});
}

}  // namespace
}  // namespace tutti
