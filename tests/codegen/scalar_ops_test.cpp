#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "tests/codegen/support/harness.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/core/number.h"
#include "tutti/core/philox.h"

namespace tutti::codegen {
namespace {

using testing::Buffer;
using testing::Recipe;

constexpr DType kIntegers[] = {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8};

bool divides(ScalarOp op) {
  return op == ScalarOp::floordiv || op == ScalarOp::truncdiv || op == ScalarOp::remainder || op == ScalarOp::fmod;
}

Expr apply(Recipe& recipe, ScalarOp op, const std::vector<DType>& dtypes) {
  std::vector<Expr> operands;
  for (const DType dtype : dtypes) operands.push_back(recipe.input(dtype));
  if (operands.size() == 1) return apply_scalar(op, operands[0]);
  if (operands.size() == 2) return apply_scalar(op, operands[0], operands[1]);
  return apply_scalar(op, operands[0], operands[1], operands[2]);
}

// Runs `op` over `operands` on every target and hands each result to `check(i, value)`. Returns the error flag.
template <class Check>
uint32_t for_results(ScalarOp op, std::vector<Buffer>& operands, Check check) {
  Recipe recipe;
  std::vector<DType> dtypes;
  for (const Buffer& b : operands) dtypes.push_back(b.dtype());
  const Expr result = apply(recipe, op, dtypes);
  recipe.output(result, result.dtype());
  const KernelSpec& spec = recipe.finish(std::string(name_of(op)).c_str());
  uint32_t error = 0;
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = operands[0].count();
    Buffer out(result.dtype(), n);
    std::vector<testing::Operand> calls;
    for (Buffer& b : operands) calls.push_back({&b});
    calls.push_back({&out});
    error |= testing::run(spec, target, calls, {1, n});
    EXPECT_TRUE(out.guards_intact());
    for (int64_t i = 0; i < n; ++i) check(i, out.value(i), target);
  }
  return error;
}

std::vector<int64_t> interesting_integers(DType dtype) {
  const int bits = static_cast<int>(itemsize(dtype)) * 8;
  if (dtype == DType::u8) return {0, 1, 2, 3, 7, 10, 16, 100, 127, 128, 200, 254, 255};
  const int64_t max = bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  return {0, 1, -1, 2, -2, 3, -3, 5, 7, -7, 10, -10, 13, 64, -63, 100, max, max - 1, -max, -max - 1, max / 2, max / 3};
}

// All pairs of interesting values.
std::vector<Buffer> integer_pairs(DType dtype, bool zero_divisors) {
  const std::vector<int64_t> values = interesting_integers(dtype);
  std::vector<int64_t> left, right;
  for (const int64_t a : values) {
    for (const int64_t b : values) {
      if (b == 0 && !zero_divisors) continue;
      left.push_back(a);
      right.push_back(b);
    }
  }
  std::vector<Buffer> operands(2, Buffer(dtype, static_cast<int64_t>(left.size())));
  for (size_t i = 0; i < left.size(); ++i) {
    store_from_int64(operands[0].at(static_cast<int64_t>(i)), dtype, left[i]);
    store_from_int64(operands[1].at(static_cast<int64_t>(i)), dtype, right[i]);
  }
  return operands;
}

class IntegerOps : public ::testing::TestWithParam<DType> {};

TEST_P(IntegerOps, FollowTheNumberProtocol) {
  for (const ScalarOp op :
       {ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::floordiv, ScalarOp::truncdiv, ScalarOp::remainder,
        ScalarOp::fmod, ScalarOp::pow, ScalarOp::maximum, ScalarOp::minimum, ScalarOp::bit_and, ScalarOp::bit_or,
        ScalarOp::bit_xor, ScalarOp::eq, ScalarOp::ne, ScalarOp::lt, ScalarOp::le, ScalarOp::gt, ScalarOp::ge}) {
    std::vector<Buffer> operands = integer_pairs(GetParam(), !divides(op));
    const uint32_t error = for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget target) {
      const ScalarValue values[] = {operands[0].value(i), operands[1].value(i)};
      const ScalarValue expected = *evaluate_scalar(op, got.dtype, values, 2);
      EXPECT_EQ(got.i, expected.i) << name_of(op) << "(" << values[0].i << ", " << values[1].i << ") "
                                   << name_of(target);
    });
    EXPECT_EQ(error, 0u) << name_of(op);
  }
  for (const ScalarOp op : {ScalarOp::neg, ScalarOp::abs, ScalarOp::sign, ScalarOp::bitwise_not}) {
    std::vector<Buffer> operands = integer_pairs(GetParam(), true);
    operands.pop_back();
    for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
      const ScalarValue value = operands[0].value(i);
      EXPECT_EQ(got.i, evaluate_scalar(op, got.dtype, &value, 1)->i) << name_of(op) << "(" << value.i << ")";
    });
  }
}

TEST_P(IntegerOps, ReportAZeroDivisorAndGoOn) {
  for (const ScalarOp op : {ScalarOp::floordiv, ScalarOp::truncdiv, ScalarOp::remainder, ScalarOp::fmod}) {
    std::vector<Buffer> operands = integer_pairs(GetParam(), true);
    const uint32_t error = for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
      const ScalarValue values[] = {operands[0].value(i), operands[1].value(i)};
      if (values[1].i == 0) return;
      EXPECT_EQ(got.i, evaluate_scalar(op, got.dtype, values, 2)->i);
    });
    EXPECT_EQ(error, 1u) << name_of(op);
  }
}

TEST_P(IntegerOps, SeeNoZeroDivisorBeyondTheEnd) {
  for (int64_t n = 1; n <= 40; ++n) {
    std::vector<Buffer> operands(2, Buffer(GetParam(), n));
    for (int64_t i = 0; i < n; ++i) store_from_int64(operands[1].at(i), GetParam(), 3);
    EXPECT_EQ(for_results(ScalarOp::floordiv, operands, [](int64_t, const ScalarValue&, CpuTarget) {}), 0u) << n;
  }
}

TEST_P(IntegerOps, ShiftEverythingOutBeyondTheWidth) {
  const DType dtype = GetParam();
  const int64_t width = itemsize(dtype) * 8;
  for (const ScalarOp op : {ScalarOp::shl, ScalarOp::shr}) {
    std::vector<Buffer> operands = integer_pairs(dtype, true);
    for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
      const int64_t x = operands[0].value(i).i, count = operands[1].value(i).i;
      const bool in_range = count >= 0 && count < width;
      int64_t expected;
      if (op == ScalarOp::shl) expected = in_range ? static_cast<int64_t>(static_cast<uint64_t>(x) << count) : 0;
      else expected = in_range ? x >> count : x < 0 ? -1 : 0;
      Buffer wrapped(dtype, 1);
      store_from_int64(wrapped.at(0), dtype, expected);
      EXPECT_EQ(got.i, wrapped.value(0).i) << name_of(op) << " " << x << " by " << count;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, IntegerOps, ::testing::ValuesIn(kIntegers),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(IntegerOps, DivideByABroadcastZeroWithoutTrap) {
  Recipe recipe;
  const Expr x = recipe.input(DType::i32), y = recipe.input(DType::i32, StrideClass::broadcast);
  recipe.output(apply_scalar(ScalarOp::floordiv, x, y), DType::i32);
  const KernelSpec& spec = recipe.finish("broadcast divisor");
  for (const CpuTarget target : testing::targets()) {
    Buffer a(DType::i32, 5), zero(DType::i32, 1), out(DType::i32, 5);
    EXPECT_EQ(testing::run(spec, target, {{&a}, {&zero}, {&out}}, {1, 5}), 1u);
    EXPECT_EQ(testing::run(spec, target, {{&a}, {&zero}, {&out}}, {1, 0}), 0u);  // nothing is divided
  }
}

// --- floats

template <class T>
T reference_float(ScalarOp op, T a, T b) {
  const auto first_nan = [&](T r) { return std::isnan(a) ? a : r; };
  switch (op) {
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::truediv:
      return a / b;
    case ScalarOp::truncdiv:
      return std::trunc(a / b);
    case ScalarOp::fmod:
      return std::fmod(a, b);
    case ScalarOp::remainder: {
      T m = std::fmod(a, b);
      if (m != 0 && (m < 0) != (b < 0)) m += b;
      return m;
    }
    case ScalarOp::floordiv: {
      if (b == 0) return a / b;
      const T m = std::fmod(a, b);
      T d = (a - m) / b;
      if (m != 0 && (b < 0) != (m < 0)) d -= 1;
      if (d == 0) return std::copysign(T(0), a / b);
      T f = std::floor(d);
      if (d - f > T(0.5)) f += 1;
      return f;
    }
    // -0 is smaller than 0.
    case ScalarOp::maximum:
      return first_nan(a > b || (a == b && !std::signbit(a)) ? a : b);
    case ScalarOp::minimum:
      return first_nan(a < b || (a == b && std::signbit(a)) ? a : b);
    case ScalarOp::fmax:
      return a > b || std::isnan(b) ? a : b;
    case ScalarOp::fmin:
      return a < b || std::isnan(b) ? a : b;
    case ScalarOp::copysign:
      return std::copysign(a, b);
    case ScalarOp::nextafter:
      return std::nextafter(a, b);
    case ScalarOp::neg:
      return -a;
    case ScalarOp::abs:
      return std::fabs(a);
    case ScalarOp::sign:
      return T((a > 0) - (a < 0));
    case ScalarOp::ceil:
      return std::ceil(a);
    case ScalarOp::floor:
      return std::floor(a);
    case ScalarOp::trunc:
      return std::trunc(a);
    case ScalarOp::round:
      return std::nearbyint(a);
    case ScalarOp::sqrt:
      return std::sqrt(a);
    case ScalarOp::rsqrt:
      return T(1) / std::sqrt(a);
    case ScalarOp::reciprocal:
      return T(1) / a;
    default:
      ADD_FAILURE() << name_of(op);
      return 0;
  }
}

std::vector<Buffer> float_operands(DType dtype, int arity) {
  std::vector<Buffer> operands;
  for (int k = 0; k < arity; ++k) {
    operands.emplace_back(dtype, 4001);
    testing::fill_with_variety(operands.back(), static_cast<uint64_t>(k) + 11);
  }
  return operands;
}

class FloatOps : public ::testing::TestWithParam<DType> {};

TEST_P(FloatOps, AreExactOrRoundedOnce) {
  const DType dtype = GetParam();
  for (const ScalarOp op :
       {ScalarOp::add,   ScalarOp::sub,       ScalarOp::mul,      ScalarOp::truediv,   ScalarOp::truncdiv,
        ScalarOp::fmod,  ScalarOp::remainder, ScalarOp::floordiv, ScalarOp::maximum,   ScalarOp::minimum,
        ScalarOp::fmax,  ScalarOp::fmin,      ScalarOp::copysign, ScalarOp::nextafter, ScalarOp::neg,
        ScalarOp::abs,   ScalarOp::sign,      ScalarOp::ceil,     ScalarOp::floor,     ScalarOp::trunc,
        ScalarOp::round, ScalarOp::sqrt,      ScalarOp::rsqrt,    ScalarOp::reciprocal}) {
    std::vector<Buffer> operands = float_operands(dtype, arity_of(op));
    for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget target) {
      const double a = operands[0].value(i).f, b = operands.back().value(i).f;
      const double expected = dtype == DType::f64
                                  ? reference_float<double>(op, a, b)
                                  : reference_float<float>(op, static_cast<float>(a), static_cast<float>(b));
      EXPECT_TRUE(testing::same_value(got, {.dtype = dtype, .f = expected}))
          << name_of(op) << "(" << a << ", " << b << ") = " << got.f << ", expected " << expected << " on "
          << name_of(target);
    });
  }
}

TEST_P(FloatOps, FmaRoundsOnce) {
  std::vector<Buffer> operands = float_operands(GetParam(), 3);
  for_results(ScalarOp::fma, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
    const double a = operands[0].value(i).f, b = operands[1].value(i).f, c = operands[2].value(i).f;
    const double expected = GetParam() == DType::f64
                                ? std::fma(a, b, c)
                                : std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
    EXPECT_TRUE(testing::same_value(got, {.dtype = GetParam(), .f = expected})) << a << " " << b << " " << c;
  });
}

TEST_P(FloatOps, PredicatesAndComparisonsFollowIeee) {
  for (const ScalarOp op : {ScalarOp::eq, ScalarOp::ne, ScalarOp::lt, ScalarOp::le, ScalarOp::gt, ScalarOp::ge,
                            ScalarOp::isnan, ScalarOp::isinf, ScalarOp::signbit, ScalarOp::logical_not}) {
    std::vector<Buffer> operands = float_operands(GetParam(), arity_of(op));
    for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
      const double a = operands[0].value(i).f, b = operands.back().value(i).f;
      bool expected = false;
      switch (op) {
        case ScalarOp::eq:
          expected = a == b;
          break;
        case ScalarOp::ne:
          expected = a != b;
          break;
        case ScalarOp::lt:
          expected = a < b;
          break;
        case ScalarOp::le:
          expected = a <= b;
          break;
        case ScalarOp::gt:
          expected = a > b;
          break;
        case ScalarOp::ge:
          expected = a >= b;
          break;
        case ScalarOp::isnan:
          expected = std::isnan(a);
          break;
        case ScalarOp::isinf:
          expected = std::isinf(a);
          break;
        case ScalarOp::signbit:
          expected = std::signbit(a);
          break;
        default:
          expected = a == 0;
      }
      if (std::isnan(a) && op == ScalarOp::signbit) return;  // the sign of a NaN passes through double in the reference
      EXPECT_EQ(got.i, expected) << name_of(op) << "(" << a << ", " << b << ")";
    });
  }
}

TEST_P(FloatOps, TranscendentalsReachTheirFunction) {
  struct Row {
    ScalarOp op;
    double (*function)(double);
    double low, high;
  };
  const Row rows[] = {
      {ScalarOp::exp, std::exp, -20, 20},
      {ScalarOp::exp2, std::exp2, -20, 20},
      {ScalarOp::expm1, std::expm1, -5, 5},
      {ScalarOp::log, std::log, 0.01, 50},
      {ScalarOp::log2, std::log2, 0.01, 50},
      {ScalarOp::log10, std::log10, 0.01, 50},
      {ScalarOp::log1p, std::log1p, -0.9, 9},
      {ScalarOp::sin, std::sin, -9, 9},
      {ScalarOp::cos, std::cos, -9, 9},
      {ScalarOp::tan, std::tan, -1.4, 1.4},
      {ScalarOp::asin, std::asin, -1, 1},
      {ScalarOp::acos, std::acos, -1, 1},
      {ScalarOp::atan, std::atan, -9, 9},
      {ScalarOp::sinh, std::sinh, -5, 5},
      {ScalarOp::cosh, std::cosh, -5, 5},
      {ScalarOp::tanh, std::tanh, -5, 5},
      {ScalarOp::asinh, std::asinh, -9, 9},
      {ScalarOp::acosh, std::acosh, 1, 9},
      {ScalarOp::atanh, std::atanh, -0.9, 0.9},
      {ScalarOp::erf, std::erf, -3, 3},
      {ScalarOp::lgamma, std::lgamma, 3, 30},
      {ScalarOp::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -9, 9},
  };
  const double tolerance = GetParam() == DType::f64 ? 1e-13 : 1e-5;
  for (const Row& row : rows) {
    std::vector<Buffer> operands(1, Buffer(GetParam(), 35));
    for (int i = 0; i < 35; ++i) operands[0].set(i, row.low + (row.high - row.low) * i / 34);
    for_results(row.op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
      const double expected = row.function(operands[0].value(i).f);
      EXPECT_NEAR(got.f, expected, tolerance * std::max(1e-2, std::fabs(expected)))
          << name_of(row.op) << "(" << operands[0].value(i).f << ")";
    });
  }
}

TEST_P(FloatOps, TwoArgumentTranscendentalsReachTheirFunction) {
  for (const ScalarOp op : {ScalarOp::pow, ScalarOp::atan2}) {
    std::vector<Buffer> operands(2, Buffer(GetParam(), 35));
    for (int i = 0; i < 35; ++i) {
      operands[0].set(i, 0.3 + 0.2 * i);
      operands[1].set(i, 3 - 0.15 * i);
    }
    for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
      const double a = operands[0].value(i).f, b = operands[1].value(i).f;
      const double expected = op == ScalarOp::pow ? std::pow(a, b) : std::atan2(a, b);
      EXPECT_NEAR(got.f, expected, (GetParam() == DType::f64 ? 1e-13 : 1e-5) * std::fabs(expected));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, FloatOps, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ScalarOps, EveryTranscendentalGivesTheSameBitsOnBothTargets) {
  for (int k = static_cast<int>(ScalarOp::exp); k <= static_cast<int>(ScalarOp::lgamma); ++k) {
    const auto op = static_cast<ScalarOp>(k);
    std::vector<Buffer> operands(1, Buffer(DType::f32, 999));
    testing::fill_with_variety(operands[0], 3);
    std::vector<ScalarValue> first;
    for_results(op, operands, [&](int64_t i, const ScalarValue& got, CpuTarget target) {
      if (target == CpuTarget::avx2) first.push_back(got);
      else
        EXPECT_TRUE(testing::same_value(got, first[static_cast<size_t>(i)]))
            << name_of(op) << "(" << operands[0].value(i).f << ")";
    });
  }
}

TEST(ScalarOps, CastBetweenAllComputeDTypes) {
  constexpr DType kCompute[] = {DType::f64, DType::f32, DType::i64, DType::i32,
                                DType::i16, DType::i8,  DType::u8,  DType::boolean};
  for (const DType from : kCompute) {
    for (const DType to : kCompute) {
      Recipe recipe;
      recipe.output(cast(recipe.input(from), to), to);
      const KernelSpec& spec = recipe.finish("cast");
      for (const CpuTarget target : testing::targets()) {
        Buffer in(from, 501), out(to, 501), expected(to, 1);
        testing::fill_with_variety(in, 9);
        testing::run(spec, target, {{&in}, {&out}}, {1, 501});
        for (int64_t i = 0; i < 501; ++i) {
          const ScalarValue v = in.value(i);
          if (is_floating(from)) expected.set(0, v.f);
          else if (to == DType::f32) expected.set(0, static_cast<double>(static_cast<float>(v.i)));  // one rounding
          else store_from_int64(expected.at(0), to, v.i);
          ASSERT_TRUE(testing::same_value(out.value(i), expected.value(0)))
              << name_of(from) << " to " << name_of(to) << " of " << v.f << " / " << v.i << " on " << name_of(target);
        }
      }
    }
  }
}

TEST(ScalarOps, StoreRoundsLikeTheScalarConversions) {
  for (const DType to : {DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2}) {
    Recipe recipe;
    recipe.output(recipe.input(DType::f32), to);
    const KernelSpec& spec = recipe.finish("narrow");
    for (const CpuTarget target : testing::targets()) {
      // All exponents, with mantissas around the ties of every format.
      std::vector<uint32_t> patterns;
      for (uint32_t exponent = 0; exponent < 256; ++exponent) {
        for (uint32_t tail : {0u, 1u, 0x8000u, 0x7fffu, 0x8001u, 0x18000u, 0x1000u, 0x3000u, 0x80000u, 0x180000u,
                              0x7fffffu, 0x100000u, 0x300000u, 0x700000u, 0x680000u, 0x6fffffu}) {
          patterns.push_back(exponent << 23 | tail);
          patterns.push_back(0x80000000u | exponent << 23 | tail);
        }
      }
      const auto n = static_cast<int64_t>(patterns.size());
      Buffer in(DType::f32, n), out(to, n), expected(to, n);
      for (int64_t i = 0; i < n; ++i) {
        in.set_bits(i, patterns[static_cast<size_t>(i)]);
        expected.set(i, in.value(i).f);
      }
      testing::run(spec, target, {{&in}, {&out}}, {1, n});
      for (int64_t i = 0; i < n; ++i)
        ASSERT_TRUE(out.bits(i) == expected.bits(i) || (std::isnan(in.value(i).f) && std::isnan(out.value(i).f)))
            << std::hex << in.bits(i) << " to " << name_of(to) << ": " << out.bits(i) << ", expected "
            << expected.bits(i);
    }
  }
}

TEST(ScalarOps, LoadWidensEveryNarrowPattern) {
  for (const DType from : {DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2}) {
    Recipe recipe;
    recipe.output(recipe.input(from), DType::f32);
    const KernelSpec& spec = recipe.finish("widen");
    const int64_t n = int64_t{1} << (itemsize(from) * 8);
    for (const CpuTarget target : testing::targets()) {
      Buffer in(from, n), out(DType::f32, n);
      for (int64_t i = 0; i < n; ++i) in.set_bits(i, static_cast<uint64_t>(i));
      testing::run(spec, target, {{&in}, {&out}}, {1, n});
      for (int64_t i = 0; i < n; ++i)
        ASSERT_TRUE(testing::same_value(out.value(i), in.value(i))) << name_of(from) << " " << i;
    }
  }
}

TEST(ScalarOps, WhereTakesTheChosenOperand) {
  std::vector<Buffer> operands{Buffer(DType::boolean, 77), Buffer(DType::f32, 77), Buffer(DType::f32, 77)};
  for (size_t k = 0; k < 3; ++k) testing::fill_with_variety(operands[k], k);
  for_results(ScalarOp::where, operands, [&](int64_t i, const ScalarValue& got, CpuTarget) {
    EXPECT_TRUE(testing::same_value(got, operands[operands[0].value(i).i ? 1 : 2].value(i)));
  });
}

TEST(ScalarOps, PhiloxMatchesTheScalarGenerator) {
  Recipe recipe;
  const Expr index = recipe.pool.leaf(ScalarOp::linear_index, DType::i64);
  recipe.output(
      apply_scalar(ScalarOp::philox, index, recipe.pool.param(0, DType::i64), recipe.pool.param(1, DType::i64)),
      DType::i64);
  const KernelSpec& spec = recipe.finish("philox");
  const uint64_t key = 0x0123456789abcdefu, high = 0xfedcba9876543210u;
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t first : {int64_t{0}, int64_t{5}, (int64_t{1} << 34) - 7}) {
      Buffer out(DType::i64, 61);
      testing::run(spec, target, {{&out}}, {1, 61},
                   {{.i = static_cast<int64_t>(key)}, {.i = static_cast<int64_t>(high)}}, first);
      for (int64_t i = 0; i < 61; ++i) {
        const uint64_t element = static_cast<uint64_t>(first + i), block = element / 4;
        const auto words = philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                       static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)},
                                      philox_key(key));
        EXPECT_EQ(out.value(i).i, static_cast<int64_t>(words[element % 4])) << element;
      }
    }
  }
}

TEST(ScalarOps, SayWhenADTypeHasNoSuchOperation) {
  Recipe recipe;
  recipe.output(apply_scalar(ScalarOp::exp, recipe.input(DType::i32)), DType::i32);
  try {
    compile_for(recipe.finish("exp of i32"), CpuTarget::avx2);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("exp is not defined for i32"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tutti::codegen
