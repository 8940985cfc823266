#include "tutti/nn/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"

namespace tutti::nn {
namespace {

using Loss = std::function<Tensor(const Tensor& input, const Tensor& target, LossReduction)>;
using Formula = std::function<double(double input, double target)>;

struct Case {
  const char* name;
  Loss loss;
  Formula formula;
  double low, high;  // of the target
};

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

const Case kCases[] = {
    {"mse", [](auto& x, auto& t, auto r) { return mse_loss(x, t, r); },
     [](double x, double t) { return (x - t) * (x - t); }, -2, 2},
    {"l1", [](auto& x, auto& t, auto r) { return l1_loss(x, t, r); },
     [](double x, double t) { return std::abs(x - t); }, -2, 2},
    {"huber", [](auto& x, auto& t, auto r) { return huber_loss(x, t, 0.7, r); },
     [](double x, double t) {
       const double d = std::abs(x - t);
       return d < 0.7 ? d * d / 2 : 0.7 * (d - 0.35);
     },
     -2, 2},
    {"smooth_l1", [](auto& x, auto& t, auto r) { return smooth_l1_loss(x, t, 0.7, r); },
     [](double x, double t) {
       const double d = std::abs(x - t);
       return d < 0.7 ? d * d / 1.4 : d - 0.35;
     },
     -2, 2},
    {"bce", [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, {}, r); },
     [](double x, double t) { return softplus(x) - x * t; }, 0, 1},
    {"weighted_bce",
     [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, full({}, 2.5, x.dtype()), r); },
     [](double x, double t) { return 2.5 * t * softplus(-x) + (1 - t) * softplus(x); }, 0, 1},
    {"kl", [](auto& x, auto& t, auto r) { return kl_div(x, t, false, r); },
     [](double x, double t) { return t > 0 ? t * (std::log(t) - x) : 0; }, 0, 1},
    {"log_kl", [](auto& x, auto& t, auto r) { return kl_div(x, t, true, r); },
     [](double x, double t) { return std::exp(t) * (t - x); }, -2, 0},
};

class Losses : public testing::TestWithParam<Case> {};

TEST_P(Losses, AreTheFormulaAndItsSlope) {
  const Case& c = GetParam();
  const Tensor x = facets::sample_tensor(1, {7, 5}, DType::f64),
               t = facets::sample_tensor(2, {7, 5}, DType::f64, c.low, c.high);
  requires_grad_(x);
  const Tensor each = c.loss(x, t, LossReduction::none);
  ASSERT_EQ(each.extents(), (Extents{7, 5}));
  backward(sum(each));
  double total = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double at = x.data<double>()[i], target = t.data<double>()[i], h = 1e-6;
    EXPECT_NEAR(each.data<double>()[i], c.formula(at, target), 1e-12);
    EXPECT_NEAR(grad_of(x).data<double>()[i], (c.formula(at + h, target) - c.formula(at - h, target)) / (2 * h), 1e-8);
    total += c.formula(at, target);
  }
  EXPECT_NEAR(c.loss(x, t, LossReduction::sum).item(), total, 1e-10);
  EXPECT_NEAR(c.loss(x, t, LossReduction::mean).item(), total / 35, 1e-12);
}

TEST_P(Losses, TakeWhatBroadcastsAndNothing) {
  const Case& c = GetParam();
  const Tensor x = facets::sample_tensor(1, {4, 3}), t = facets::sample_tensor(2, {3}, DType::f32, c.low, c.high);
  EXPECT_EQ(c.loss(x, t, LossReduction::none).extents(), (Extents{4, 3}));
  const Tensor none = Tensor::empty({0, 3});
  EXPECT_EQ(c.loss(none, none, LossReduction::sum).item(), 0);
  EXPECT_TRUE(std::isnan(c.loss(none, none, LossReduction::mean).item()));
  EXPECT_THROW(c.loss(Tensor::of<int64_t>({1}), t, LossReduction::none), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Every, Losses, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

// Between exp(-80) and denormals, where one of the two sigmoids is nearly 1 and the target says so or not.
TEST(LossEdges, BinaryCrossEntropyKeepsItsDigits) {
  const auto ulps = [](float got, double want) {
    return want == 0 ? (got == 0 ? 0 : INFINITY)
                     : std::fabs(got - want) / std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
  };
  const auto sigmoid_at = [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); };
  for (const double weight : {1.0, 2.5}) {
    for (const float target : {0.0f, 1.0f, 0.5f, 0x1p-30f}) {
      for (float at = -102; at <= 102; at += 0.75f) {
        const Tensor x = requires_grad_(Tensor::of<float>({at})), t = Tensor::of<float>({target});
        const Tensor loss =
            binary_cross_entropy_with_logits(x, t, weight == 1 ? Tensor() : full({}, weight), LossReduction::sum);
        backward(loss);
        const double up = (1 - double{target}) * sigmoid_at(at), down = weight * target * sigmoid_at(-at);
        EXPECT_LE(ulps(loss.data<float>()[0], (1 - double{target}) * softplus(at) + weight * target * softplus(-at)), 4)
            << at << " target " << target;
        const double error = std::fabs(grad_of(x).data<float>()[0] - (up - down)),
                     unit = std::ldexp(1.0, std::max(std::ilogb(std::max(up, down)), -126) - 23);
        EXPECT_LE(error / unit, 4) << at << " target " << target << " weight " << weight << ": "
                                   << grad_of(x).data<float>()[0] << " instead of " << up - down;
      }
    }
  }
  const Tensor x = requires_grad_(Tensor::of<float>({20}));
  backward(binary_cross_entropy_with_logits(x, Tensor::of<float>({1}), {}, LossReduction::sum));
  EXPECT_LE(ulps(grad_of(x).data<float>()[0], -std::exp(-20.0) / (1 + std::exp(-20.0))), 4);
}

TEST(LossEdges, LargeLogitsAndTargetsOfZero) {
  const Tensor logits = Tensor::of<float>({800, -800, 0}), target = Tensor::of<float>({0, 1, 0.5});
  requires_grad_(logits);
  const Tensor each = binary_cross_entropy_with_logits(logits, target, {}, LossReduction::none);
  EXPECT_EQ(each.data<float>()[0], 800);
  EXPECT_EQ(each.data<float>()[1], 800);
  backward(sum(each));
  EXPECT_EQ(grad_of(logits).data<float>()[0], 1);
  EXPECT_EQ(grad_of(logits).data<float>()[1], -1);
  EXPECT_EQ(grad_of(logits).data<float>()[2], 0);
  const Tensor zero = Tensor::of<float>({0, 0});
  requires_grad_(zero);
  const Tensor loss = kl_div(Tensor::of<float>({-1, -INFINITY}), zero, false, LossReduction::sum);
  EXPECT_EQ(loss.item(), 0);
  backward(loss);
  EXPECT_TRUE(std::isfinite(grad_of(zero).data<float>()[0]));
}

TEST(LossEdges, WidthsThatMakeNoSense) {
  const Tensor x = Tensor::of<float>({1});
  EXPECT_THROW(huber_loss(x, x, 0), UsageError);
  EXPECT_THROW(smooth_l1_loss(x, x, -1), UsageError);
  EXPECT_EQ(smooth_l1_loss(x, Tensor::of<float>({3}), 0).item(), 2);
}

TEST(LossEdges, TheBitsOfTheOpsOneByOneInBf16) {
  const Tensor x = facets::sample_tensor(1, {33, 9}, DType::bf16), t = facets::sample_tensor(2, {33, 9}, DType::bf16);
  const Tensor d = sub(x, t), expected = mul(d, d), got = mse_loss(x, t, LossReduction::none);
  EXPECT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), static_cast<size_t>(got.nbytes())), 0);
}

TEST(LossEdges, GradientsOfGradients) {
  const Tensor x = facets::sample_tensor(1, {6}, DType::f64), t = facets::sample_tensor(2, {6}, DType::f64);
  requires_grad_(x);
  const Tensor outputs[] = {mse_loss(x, t, LossReduction::sum)}, leaves[] = {x};
  const Tensor first[] = {sum(grad(outputs, leaves, {}, {.create_graph = true})[0])};
  EXPECT_NEAR(grad(first, leaves)[0].data<double>()[3], 2.0, 1e-12);
}

}  // namespace
}  // namespace tutti::nn
