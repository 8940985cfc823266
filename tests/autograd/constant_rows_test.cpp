// Rows whose elements are all the same have no spread, and the gradient of their spread is 0, not 0 / 0.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/autograd/backward.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/statistics.h"

namespace tutti {
namespace {

using Spread = Tensor (*)(const Tensor&, const VarOptions&);

TEST(ConstantRows, SpreadHasTheGradientZero) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const Spread spread : {Spread{var}, Spread{stddev}}) {
      for (const double correction : {0.0, 1.0}) {
        const Tensor x = requires_grad_(full({3, 8}, 1.5, dtype));
        const Tensor outputs[] = {spread(x, {.dims = {1}, .correction = correction})}, inputs[] = {x};
        const Tensor cotangents[] = {full({3}, 1.0, dtype)};
        const Tensor gradient = grad(outputs, inputs, cotangents)[0];
        for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(facets::read_double(outputs[0], i), 0);
        for (int64_t i = 0; i < gradient.numel(); ++i) EXPECT_EQ(facets::read_double(gradient, i), 0) << name_of(dtype);
      }
    }
  }
}

// Values and lengths whose mean is rounded: the elements then differ from their mean, but not from each other.
TEST(ConstantRows, OfAnyValueAndLengthHaveTheGradientZero) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const Spread spread : {Spread{var}, Spread{stddev}}) {
      for (const int64_t n : {3, 5, 7, 100, 768}) {
        for (const double value : {0.1, -0.3, 1.0 / 3.0, 1e-3, 7.7}) {
          const Tensor x = requires_grad_(full({2, n}, value, dtype));
          const Tensor outputs[] = {spread(x, {.dims = {1}})}, inputs[] = {x};
          const Tensor cotangents[] = {full({2}, 1.0, dtype)};
          const Tensor gradient = grad(outputs, inputs, cotangents)[0];
          for (int64_t i = 0; i < gradient.numel(); ++i)
            ASSERT_EQ(facets::read_double(gradient, i), 0) << name_of(dtype) << " " << n << " times " << value;
        }
      }
    }
  }
}

TEST(ConstantRows, AreZeroBesideRowsThatVary) {
  const Tensor x = requires_grad_(Tensor::of(std::vector<double>{2, 2, 2, 1, 2, 6}, {2, 3}));
  const Tensor outputs[] = {stddev(x, {.dims = {1}})}, inputs[] = {x};
  const Tensor cotangents[] = {Tensor::of(std::vector<double>{1, 1})};
  const Tensor gradient = grad(outputs, inputs, cotangents)[0];
  const double std = std::sqrt((4.0 + 1.0 + 9.0) / 2);
  const double expected[] = {0, 0, 0, -2 / (2 * std), -1 / (2 * std), 3 / (2 * std)};
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(gradient.data<double>()[i], expected[i], 1e-15);
}

}  // namespace
}  // namespace tutti
