#include "tutti/core/symfloat.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <type_traits>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

template <class A, class B>
concept Divides = requires(A a, B b) { a / b; };
template <class A, class B>
concept Modulo = requires(A a, B b) { a % b; };

// C++ truncates where Python floors, so neither operator exists, in any mix of operands.
static_assert(!Divides<SymInt, SymInt> && !Divides<SymInt, int> && !Divides<int64_t, SymInt>);
static_assert(!Modulo<SymInt, SymInt> && !Modulo<SymInt, int> && !Modulo<int64_t, SymInt>);
static_assert(sizeof(SymInt) == 8 && std::is_trivially_copyable_v<SymInt>);

TEST(SymInt, HoldsEveryInt64IncludingTheReservedOnes) {
  for (int64_t v : {int64_t{0}, int64_t{-1}, kMax, kMin, kMin + 1, kMin + 12345, kMin + (int64_t{1} << 32) - 1,
                    kMin + (int64_t{1} << 32)}) {
    const SymInt s = v;
    EXPECT_FALSE(s.is_symbolic()) << v;
    EXPECT_EQ(s.value(), v);
    EXPECT_EQ(s.to_string(), std::to_string(v));
    EXPECT_EQ(SymInt(v).raw(), s.raw()) << "equal integers have equal bytes";
  }
}

TEST(SymInt, ComparesReservedIntegersByValue) {
  EXPECT_TRUE(SymInt(kMin) < SymInt(kMin + 1));
  EXPECT_TRUE(SymInt(kMin) == SymInt(kMin));
  EXPECT_TRUE(SymInt(kMin + 1) != SymInt(kMin));
}

TEST(SymInt, DividesAsPythonDoes) {
  EXPECT_EQ(floordiv(SymInt(-7), 2).value(), -4);
  EXPECT_EQ(truncdiv(SymInt(-7), 2).value(), -3);
  EXPECT_EQ(remainder(SymInt(-7), 2).value(), 1);
  EXPECT_EQ(fmod(SymInt(-7), 2).value(), -1);
  EXPECT_EQ(truediv(SymInt(1), 3).value(), 1.0 / 3.0);
}

TEST(SymInt, TrueDivisionRoundsTheExactQuotientOnce) {
  // Converting the operands first would give 1.0.
  EXPECT_EQ(truediv(SymInt(kMax), kMax - 1).value(), 1.0000000000000000001084);
  EXPECT_EQ(truediv(SymInt((int64_t{1} << 53) + 1), 1).value(), 0x1p53);
  EXPECT_EQ(truediv(SymInt((int64_t{1} << 53) + 1), 3).value(), 3002399751580331.0);
}

TEST(SymInt, ThrowsOnEveryOverflow) {
  EXPECT_THROW(SymInt(kMax) + 1, SymIntOverflow);
  EXPECT_THROW(SymInt(kMin) - 1, SymIntOverflow);
  EXPECT_THROW(SymInt(kMax) * 2, SymIntOverflow);
  EXPECT_THROW(-SymInt(kMin), SymIntOverflow);
  EXPECT_THROW(floordiv(SymInt(kMin), -1), SymIntOverflow);
  EXPECT_THROW(truncdiv(SymInt(kMin), -1), SymIntOverflow);
  EXPECT_THROW(pow(SymInt(2), 63), SymIntOverflow);
  EXPECT_EQ(pow(SymInt(-2), 63).value(), kMin);
  EXPECT_EQ(remainder(SymInt(kMin), -1).value(), 0);
  EXPECT_EQ(fmod(SymInt(kMin), -1).value(), 0);
}

TEST(SymInt, AnOverflowNamesTheExpression) {
  try {
    SymInt(kMax) * 3;
    FAIL();
  } catch (const SymIntOverflow& e) {
    EXPECT_STREQ(e.what(), "SymIntOverflow: 9223372036854775807 * 3 does not fit in 64 bits");
  }
}

TEST(SymInt, DivisionByZeroIsAZeroDivisionError) {
  using Division = SymInt (*)(SymInt, SymInt);
  for (Division divide : {Division{floordiv}, Division{truncdiv}, Division{remainder}, Division{fmod}})
    EXPECT_THROW(divide(5, 0), IntegerDivideByZero);
  try {
    truediv(SymInt(5), 0);
    FAIL();
  } catch (const IntegerDivideByZero& e) {
    EXPECT_NE(std::string(e.what()).find("ZeroDivisionError"), std::string::npos);
  }
}

TEST(SymInt, ANegativeExponentIsRefused) { EXPECT_THROW(pow(SymInt(2), -1), UsageError); }

TEST(SymInt, MinimumAndMaximumPickAnOperand) {
  EXPECT_EQ(minimum(SymInt(3), -4).value(), -4);
  EXPECT_EQ(maximum(SymInt(3), -4).value(), 3);
}

}  // namespace
}  // namespace tutti
