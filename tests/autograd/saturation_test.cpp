// Gradients that are computed from results, y (1 - y) and 1 - y^2, know only what the rounding of y near 1 has left:
// docs/loss.md.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

constexpr double kUlp = 0x1p-24;  // of numbers in [0.5, 1)

double gradient(Tensor (*fn)(const Tensor&), float x) {
  const Tensor leaf = requires_grad_(Tensor::of<float>({x}));
  backward(fn(leaf));
  return grad_of(leaf).item();
}

TEST(Saturation, CostsDigitsInProportionToTheDistanceFromOne) {
  for (const float x : {0.0f, 1.0f, 3.0f, 6.0f, 8.0f, 10.0f, 12.0f, 15.0f, 16.0f}) {
    const double rest = 1 / (1 + std::exp(static_cast<double>(x))),
                 exact = rest * (1 - rest);  // rest = 1 - sigmoid(x), without cancellation
    EXPECT_NEAR(gradient(sigmoid, x), exact, (kUlp / rest + 4 * kUlp) * exact) << "sigmoid at " << x;
    EXPECT_NEAR(gradient(sigmoid, -x), exact, 8 * kUlp * exact) << "small y keep their digits: sigmoid at " << -x;
  }
  for (const float x : {0.5f, 1.0f, 2.0f, 4.0f, 6.0f, 8.0f}) {
    const double cosh = std::cosh(static_cast<double>(x)), exact = 1 / (cosh * cosh);
    EXPECT_NEAR(gradient(tanh, x), exact, (2 * kUlp / exact + 4 * kUlp) * exact) << "tanh at " << x;
  }
  EXPECT_EQ(gradient(sigmoid, 18), 0.0);
  EXPECT_EQ(gradient(tanh, 10), 0.0);
}

}  // namespace
}  // namespace tutti
