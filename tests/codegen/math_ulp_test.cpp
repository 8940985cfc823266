#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/codegen/support/harness.h"
#include "tests/codegen/support/math_reference.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using testing::evaluate;
using testing::Lanes;
using testing::math_case;
using testing::MathCase;
using testing::MathSample;
using testing::Worst;

constexpr int64_t kSamples = 20'000;

template <class T>
std::vector<T> results(ScalarOp op, CpuTarget target, Lanes lanes, const MathSample<T>& sample) {
  std::vector<T> out(sample.x.size());
  evaluate(op, target, lanes, sample.x.data(), sample.y.data(), out.data(), static_cast<int64_t>(out.size()));
  return out;
}

class Math : public ::testing::TestWithParam<MathCase> {};

TEST_P(Math, StaysWithinItsStatedErrorInF32) {
  const MathCase& c = GetParam();
  const auto sample = testing::math_sample<float>(c.op, kSamples, 1);
  const Worst worst = testing::worst_of(c, sample, results(c.op, cpu_target(), Lanes::full, sample));
  EXPECT_LE(worst.ulp, c.max_ulp_f32) << name_of(c.op) << std::hexfloat << "(" << worst.x << ", " << worst.y << ")";
}

TEST_P(Math, StaysWithinItsStatedErrorInF64) {
  const MathCase& c = GetParam();
  auto sample = testing::math_sample<double>(c.op, kSamples, 2);
  if (c.op == ScalarOp::lgamma) {  // has zeros at negative x; see NegativeLgamma
    for (double& x : sample.x) x = std::fabs(x);
  }
  const Worst worst = testing::worst_of(c, sample, results(c.op, cpu_target(), Lanes::full, sample));
  EXPECT_LE(worst.ulp, c.max_ulp_f64) << name_of(c.op) << std::hexfloat << "(" << worst.x << ", " << worst.y << ")";
}

template <class T>
void expect_same_bits(ScalarOp op) {
  const auto sample = testing::math_sample<T>(op, kSamples, 3);
  const std::vector<T> first = results(op, testing::targets().front(), Lanes::one, sample);
  for (const CpuTarget target : testing::targets()) {
    for (const Lanes lanes : {Lanes::full, Lanes::one}) {
      const std::vector<T> other = results(op, target, lanes, sample);
      for (size_t i = 0; i < other.size(); ++i) {
        ASSERT_EQ(std::memcmp(&first[i], &other[i], sizeof(T)), 0)
            << name_of(op) << std::hexfloat << "(" << sample.x[i] << ", " << sample.y[i] << "): " << first[i] << " and "
            << other[i] << " for " << name_of(target);
      }
    }
  }
}

TEST_P(Math, GivesTheSameBitsForEveryVectorWidth) {
  expect_same_bits<float>(GetParam().op);
  expect_same_bits<double>(GetParam().op);
}

INSTANTIATE_TEST_SUITE_P(, Math, ::testing::ValuesIn(testing::math_cases().begin(), testing::math_cases().end()),
                         [](const auto& info) { return std::string(name_of(info.param.op)); });

template <class T>
T one_value(ScalarOp op, T x, T y = 0) {
  T out = 0;
  evaluate(op, cpu_target(), Lanes::full, &x, &y, &out, 1);
  return out;
}

TEST(MathLimits, ExponentialsEndInZeroInfinityAndDenormals) {
  const float inf = INFINITY;
  EXPECT_EQ(one_value(ScalarOp::exp, inf), inf);
  EXPECT_EQ(one_value(ScalarOp::exp, -inf), 0.0f);
  EXPECT_EQ(one_value(ScalarOp::exp, 88.72283f), static_cast<float>(std::exp(static_cast<double>(88.72283f))));
  EXPECT_EQ(one_value(ScalarOp::exp, std::nextafter(88.72283f, 89.0f)), inf);
  EXPECT_EQ(one_value(ScalarOp::exp, -103.9720f), 0x1p-149f);
  EXPECT_EQ(one_value(ScalarOp::sigmoid, -100.0f), static_cast<float>(std::exp(-100.0)));
  EXPECT_EQ(one_value(ScalarOp::expm1, -inf), -1.0f);
}

TEST(MathLimits, PowersOfTwoAndTenAreExact) {
  for (int k = -149; k <= 127; ++k) {
    const float power = std::ldexp(1.0f, k);
    EXPECT_EQ(one_value(ScalarOp::exp2, static_cast<float>(k)), power);
    EXPECT_EQ(one_value(ScalarOp::log2, power), static_cast<float>(k));
  }
  for (int k = 0; k <= 22; ++k) EXPECT_EQ(one_value(ScalarOp::log10, std::pow(10.0, k)), k);
}

TEST(MathLimits, ZerosKeepTheirSign) {
  for (const ScalarOp op :
       {ScalarOp::expm1, ScalarOp::log1p, ScalarOp::sin, ScalarOp::tan, ScalarOp::asin, ScalarOp::atan, ScalarOp::sinh,
        ScalarOp::tanh, ScalarOp::asinh, ScalarOp::atanh, ScalarOp::erf, ScalarOp::erfinv}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(one_value(op, -0.0f)), 0x80000000u) << name_of(op);
    EXPECT_EQ(std::bit_cast<uint64_t>(one_value(op, -0.0)), uint64_t{1} << 63) << name_of(op);
  }
}

// The f64 and f32 that lie closest to a multiple of pi/2 for their size, and the largest ones.
TEST(MathLimits, LargeAnglesAreReducedExactly) {
  for (const double x : {6381956970095103.0 * 0x1p797, 0x1.fffffffffffffp1023, 1e22, -0x1p28 - 1.0}) {
    EXPECT_LE(testing::ulp_distance(one_value(ScalarOp::sin, x), std::sin(static_cast<long double>(x))), 1.1) << x;
    EXPECT_LE(testing::ulp_distance(one_value(ScalarOp::cos, x), std::cos(static_cast<long double>(x))), 1.1) << x;
  }
  for (const float x : {16367173.0f * 0x1p72f, 0x1.fffffep127f, 1e10f, -65537.0f}) {
    EXPECT_LE(testing::ulp_distance(one_value(ScalarOp::sin, x), std::sin(static_cast<long double>(x))), 0.9) << x;
    EXPECT_LE(testing::ulp_distance(one_value(ScalarOp::cos, x), std::cos(static_cast<long double>(x))), 0.9) << x;
  }
}

template <class T>
void expect_digits_near_multiples_of_half_pi(double bound) {
  MathSample<T> sample;
  for (int64_t n = 1; n < (int64_t{1} << 40); n += 1 + n / 500) {
    const T x = static_cast<T>(static_cast<long double>(n) * 1.57079632679489661923132169163975144L);
    for (const T near : {std::nextafter(x, T(0)), x, -x}) sample.x.push_back(near);
  }
  sample.y = sample.x;
  for (const ScalarOp op : {ScalarOp::sin, ScalarOp::cos}) {
    const std::vector<T> out = results(op, cpu_target(), Lanes::full, sample);
    const Worst worst = testing::worst_of(math_case(op), sample, out);
    EXPECT_LE(worst.ulp, bound) << name_of(op) << std::hexfloat << "(" << worst.x << ")";
  }
}

// There the result is what is left after many digits have cancelled.
TEST(MathLimits, AnglesNextToMultiplesOfHalfPiKeepTheirDigits) {
  expect_digits_near_multiples_of_half_pi<float>(math_case(ScalarOp::sin).max_ulp_f32);
  expect_digits_near_multiples_of_half_pi<double>(math_case(ScalarOp::sin).max_ulp_f64);
}

// Near its zeros at negative x the error of lgamma is that of its terms.
TEST(MathLimits, NegativeLgammaHasASmallAbsoluteError) {
  for (double x = -30.013; x < 0; x += 0.0371) {
    const double got = one_value(ScalarOp::lgamma, x), want = std::lgamma(x);
    EXPECT_NEAR(got, want, 8 * 0x1p-52 * std::max(1.0, std::fabs(x * std::log(-x)))) << x;
  }
}

TEST(MathLimits, ValuesOutsideTheDomainGiveNan) {
  for (const ScalarOp op : {ScalarOp::log, ScalarOp::log2, ScalarOp::log10})
    EXPECT_TRUE(std::isnan(one_value(op, -1.0f))) << name_of(op);
  for (const ScalarOp op : {ScalarOp::asin, ScalarOp::acos, ScalarOp::atanh, ScalarOp::erfinv})
    EXPECT_TRUE(std::isnan(one_value(op, 1.5f))) << name_of(op);
  EXPECT_TRUE(std::isnan(one_value(ScalarOp::acosh, 0.5f)));
  EXPECT_TRUE(std::isnan(one_value(ScalarOp::log1p, -2.0f)));
  EXPECT_TRUE(std::isnan(one_value(ScalarOp::pow, -2.0f, 0.5f)));
  EXPECT_TRUE(std::isnan(one_value(ScalarOp::sin, INFINITY)));
}

}  // namespace
}  // namespace tutti::codegen
