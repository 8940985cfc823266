#include "tutti/core/symfloat.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <type_traits>

#include "tests/support/message_of.h"
#include "tutti/core/error.h"
#include "tutti/core/shape.h"
#include "tutti/core/sym_graph.h"

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

// Neither a truth value, nor a character, nor a fraction is a size.
template <class... T>
constexpr bool kNoneConverts = (!std::is_convertible_v<T, SymInt> && ...);
static_assert(kNoneConverts<bool, char, wchar_t, char8_t, char16_t, char32_t, float, double, const char*>);
constexpr SymInt kOfUnsigned = size_t{3}, kOfShort = short{-3};

template <class T>
void expect_extremes() {
  for (const T value : {std::numeric_limits<T>::lowest(), T{0}, T{1}, std::numeric_limits<T>::max()}) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(int64_t)) {
      if (value > T{1}) continue;
    }
    const SymInt size = value;
    EXPECT_FALSE(size.is_symbolic());
    EXPECT_EQ(size.value(), static_cast<int64_t>(value));
    EXPECT_TRUE(size == value);
    EXPECT_TRUE(value == size);
    EXPECT_EQ(size.raw(), SymInt(static_cast<int64_t>(value)).raw()) << "equal integers have equal bytes";
  }
}

TEST(SymInt, TakesEveryIntegerTypeAtItsExtremes) {
  expect_extremes<signed char>();
  expect_extremes<unsigned char>();
  expect_extremes<short>();
  expect_extremes<unsigned short>();
  expect_extremes<int>();
  expect_extremes<unsigned>();
  expect_extremes<long>();
  expect_extremes<unsigned long>();
  expect_extremes<long long>();
  expect_extremes<unsigned long long>();
  EXPECT_EQ(SymInt(uint64_t{kMax}).value(), kMax);
  EXPECT_EQ(kOfUnsigned.value() + kOfShort.value(), 0);
}

TEST(SymInt, RefusesAnUnsignedValueAboveInt64) {
  const std::string part = "exceeds 9223372036854775807";
  for (const uint64_t value : {uint64_t{kMax} + 1, std::numeric_limits<uint64_t>::max()}) {
    const std::string said = message_of([&] { (void)SymInt(value); });
    EXPECT_NE(said.find("the integer " + std::to_string(value) + " " + part), std::string::npos) << said;
  }
  const std::vector<int> none;
  EXPECT_THROW((void)SymInt(none.size() - 1), UsageError);
  EXPECT_THROW((void)SymInt(std::numeric_limits<unsigned long long>::max()), UsageError);
}

TEST(SymInt, MixesWithEveryIntegerType) {
  const size_t count = 3;
  const unsigned char byte = 2;
  const long long large = 5;
  SymInt n = 7;
  EXPECT_EQ((n * count).value(), 21);
  EXPECT_EQ((byte + n).value(), 9);
  EXPECT_EQ(floordiv(n, count).value(), 2);
  EXPECT_EQ(minimum(n, large).value(), 5);
  EXPECT_TRUE(n > count && large < n && n != byte);
  n += count;
  n *= byte;
  n -= large;
  EXPECT_EQ(n.value(), 15);
  const Shape sizes{2, count, byte, large, n, int16_t{1}};
  EXPECT_EQ(to_string(sizes), "[2, 3, 2, 5, 15, 1]");
}

TEST(SymInt, ASymbolMixesWithEveryIntegerType) {
  SymGraph graph;
  const SymGraph::Scope scope(graph);
  const SymInt n = graph.symbol("n", 5);
  EXPECT_EQ((n * size_t{3}).guard_int(), 15);
  EXPECT_EQ((unsigned{2} + n).guard_int(), 7);
  EXPECT_TRUE(n == size_t{5});
}

TEST(SymInt, GoesToAStreamAsText) {
  SymGraph graph;
  const SymGraph::Scope scope(graph);
  std::ostringstream text;
  text << SymInt(-4) << ' ' << graph.symbol("n", 5) << ' ' << SymFloat(0.5) << ' ' << Shape{2, graph.symbol("m", 3)}
       << ' ' << Extents{4, 1} << ' ' << Extents{};
  EXPECT_EQ(text.str(), "-4 n 0.5 [2, m] [4, 1] []");
}

}  // namespace
}  // namespace tutti
