// gelu and its gradient where they are small, against the formulas in long double: relative error, down to the smallest
// numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/autograd/backward.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"

namespace tutti {
namespace {

constexpr long double kPi = 3.14159265358979323846264338327950288L;

long double exact(long double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0L)); }
long double exact_slope(long double x) {
  return std::erfc(-x / std::sqrt(2.0L)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * kPi);
}

long double gate(long double x) { return 1 / (1 + std::exp(-2 * std::sqrt(2 / kPi) * (x + 0.044715L * x * x * x))); }
long double approximate(long double x) { return x * gate(x); }
long double approximate_slope(long double x) {
  return gate(x) + x * gate(x) * (1 - gate(x)) * 2 * std::sqrt(2 / kPi) * (1 + 3 * 0.044715L * x * x);
}

struct Form {
  GeluForm form;
  long double (*value)(long double);
  long double (*slope)(long double);
  double accepted_f32, accepted_f64, lowest_f32, lowest_f64;  // the lowest x with normal results
};
// The tanh form loses what its cubic argument, up to 90 in f32, has as a rounding error.
const Form kForms[] = {{GeluForm::erf, exact, exact_slope, 6e-7, 3e-15, -12.8, -37},
                       {GeluForm::tanh, approximate, approximate_slope, 2e-5, 4e-13, -9.8, -20}};

template <class T>
void expect_relative(const Form& form, double lowest, double accepted) {
  std::vector<T> x;
  for (double v = lowest; v < 9; v += 0.0037) x.push_back(static_cast<T>(v));
  const Tensor input = requires_grad_(Tensor::of(x));
  const Tensor y = gelu(input, form.form);
  const Tensor outputs[] = {sum(y)}, inputs[] = {input};
  const Tensor slope = grad(outputs, inputs)[0];
  const auto relative = [](long double got, long double want) {
    return static_cast<double>(std::fabs((got - want) / want));
  };
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0) continue;
    ASSERT_LE(relative(y.data<T>()[i], form.value(x[i])), accepted) << "gelu of " << x[i];
    const long double want = form.slope(x[i]);
    if (std::fabs(want) < 0.05L && x[i] > -2) continue;  // the slope is 0 near -0.75
    ASSERT_LE(relative(slope.data<T>()[i], want), 20 * accepted) << "gradient at " << x[i];
  }
}

TEST(GeluTail, HasASmallRelativeErrorInF32) {
  for (const Form& form : kForms) expect_relative<float>(form, form.lowest_f32, form.accepted_f32);
}

TEST(GeluTail, HasASmallRelativeErrorInF64) {
  for (const Form& form : kForms) expect_relative<double>(form, form.lowest_f64, form.accepted_f64);
}

TEST(GeluTail, FarOutIsTheArgumentOrNothing) {
  const float inf = INFINITY;
  for (const GeluForm form : {GeluForm::erf, GeluForm::tanh}) {
    const Tensor y = gelu(Tensor::of(std::vector<float>{inf, 1e20f, 50, -50, -1e20f, NAN}), form);
    const float* v = y.data<float>();
    EXPECT_EQ(v[0], inf);
    EXPECT_EQ(v[1], 1e20f);
    EXPECT_EQ(v[2], 50);
    EXPECT_EQ(v[3], 0);
    EXPECT_EQ(v[4], 0);
    EXPECT_TRUE(std::isnan(v[5]));
  }
}

}  // namespace
}  // namespace tutti
