// What is special about logcumsumexp: infinities, terms far apart, second derivatives.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/decayed_cumsum.h"
#include "tutti/ops/logcumsumexp.h"
#include "tutti/ops/reduction.h"

namespace tutti {
namespace {

using Doubles = std::vector<double>;
Doubles values(const Tensor& t) { return {t.data<double>(), t.data<double>() + t.numel()}; }

TEST(Logcumsumexp, HasNoGradientAtEmptySums) {
  const Tensor x = requires_grad_(Tensor::of<double>({-INFINITY, -INFINITY, 1, 1}));
  const Tensor y = logcumsumexp(x, 0);
  EXPECT_EQ(values(y), (Doubles{-INFINITY, -INFINITY, 1, 1 + std::log(2.0)}));
  backward(sum(y));
  const Doubles g = values(grad_of(x)), expected = {0, 0, 1.5, 0.5};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(g[i], expected[i], 1e-15) << i;
}

TEST(Logcumsumexp, NeitherOverflowsNorLosesSmallTerms) {
  const Tensor x = requires_grad_(Tensor::of<double>({-1000, 1000, -40, 1000}));
  const Tensor y = logcumsumexp(x, 0);
  EXPECT_EQ(values(y), (Doubles{-1000, 1000, 1000, 1000 + std::log(2.0)}));
  backward(y, Tensor::of<double>({1, -1, 1, -2}));  // signs mix
  const Doubles g = values(grad_of(x));
  EXPECT_NEAR(g[0], 1, 1e-12);
  EXPECT_NEAR(g[1], -1, 1e-12);
  EXPECT_NEAR(g[3], -1, 1e-12);
  const Tensor tiny = logcumsumexp(Tensor::of<float>({0, -20}), 0);
  EXPECT_EQ(tiny.data<float>()[1], std::log1p(std::exp(-20.0f)));  // 0 + 2e-9
}

// d/dx of <v, dy/dx> against differences, also where cotangents are zero.
TEST(Logcumsumexp, CanBeDifferentiatedTwice) {
  const Doubles at = {0.3, -1.2, 0.9, 2.0, -0.4};
  const Tensor weights = Tensor::of<double>({0, 1, 0, -2, 1}), v = Tensor::of<double>({1, -1, 2, 0.5, 3});
  const auto first = [&](const Tensor& x) {
    const Tensor y = logcumsumexp(x, 0);
    return sum(mul(grad({{y}}, {{x}}, {{weights}}, {.create_graph = true})[0], v));
  };
  const Tensor x = requires_grad_(Tensor::of<double>(at));
  const Tensor second = grad({{first(x)}}, {{x}})[0];
  for (size_t i = 0; i < at.size(); ++i) {
    Doubles up = at, down = at;
    up[i] += 1e-5, down[i] -= 1e-5;
    const double expected = (first(requires_grad_(Tensor::of<double>(up))).item() -
                             first(requires_grad_(Tensor::of<double>(down))).item()) /
                            2e-5;
    EXPECT_NEAR(second.data<double>()[i], expected, 1e-8) << i;
  }
}

TEST(Logcumsumexp, RefusesIntegers) {
  EXPECT_EQ(message_of([] { logcumsumexp(zeros({3}, DType::i64), 0); }),
            "logcumsumexp: x is [3] i64 cpu; expected floats, cast() it");
}

TEST(DecayedCumsum, GoesBothWays) {
  const Tensor x = Tensor::of<double>({1, 2, 3}), decay = Tensor::of<double>({NAN, 0.5, 2});
  EXPECT_EQ(values(decayed_cumsum(x, decay, 0)), (Doubles{1, 2.5, 8}));
  EXPECT_EQ(values(decayed_cumsum(x, decay, 0, true)), (Doubles{5, 8, 3}));
  EXPECT_EQ(message_of([&] { decayed_cumsum(x, zeros({3}), 0); }),
            "decayed_cumsum: x is [3] f64 cpu, decay is [3] f32 cpu; expected floats of equal dtype and sizes");
}

}  // namespace
}  // namespace tutti
