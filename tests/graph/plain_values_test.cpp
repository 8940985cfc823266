// How the difference between the plain arguments of two calls is told.
#include "tutti/graph/plain_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti::graph {
namespace {

template <class... T>
std::string plain_of(const T&... arguments) {
  Leaves leaves;
  Flattener flatten(leaves);
  (flatten(arguments), ...);
  return leaves.plain;
}

template <class... T>
std::string difference(const std::tuple<T...>& now, const std::tuple<T...>& then) {
  return plain_difference(plain_of(now), plain_of(then));
}

enum class Mode : uint8_t { slow, quick = 7 };

TEST(PlainValues, EachKindIsShown) {
  EXPECT_EQ(difference(std::tuple(1, 2.5, true), std::tuple(1, 0.1, true)), "plain value 2 is 2.5, was 0.1");
  EXPECT_EQ(difference(std::tuple(1.5F), std::tuple(-0.0F)), "plain value 1 is 1.5, was -0");
  EXPECT_EQ(difference(std::tuple(false, 1), std::tuple(true, 1)), "plain value 1 is false, was true");
  EXPECT_EQ(difference(std::tuple(Mode::quick), std::tuple(Mode::slow)),
            "plain value 1 is enumerator 7, was enumerator 0");
  EXPECT_EQ(difference(std::tuple(std::string("sum")), std::tuple(std::string("mean"))),
            "plain value 1 is 'sum', was 'mean'");
  EXPECT_EQ(difference(std::tuple(std::string(50, 'x')), std::tuple(std::string("y"))),
            "plain value 1 is '" + std::string(40, 'x') + "' and 10 more, was 'y'");
  EXPECT_EQ(difference(std::tuple(int8_t{-3}), std::tuple(int8_t{3})), "plain value 1 is -3, was 3");
  EXPECT_EQ(difference(std::tuple(std::numeric_limits<int64_t>::min()), std::tuple(int64_t{0})),
            "plain value 1 is -9223372036854775808, was 0");
  EXPECT_EQ(difference(std::tuple(std::numeric_limits<uint64_t>::max()), std::tuple(uint64_t{0})),
            "plain value 1 is 18446744073709551615, was 0");
  EXPECT_EQ(difference(std::tuple(std::vector<int>{1, 2, 3}), std::tuple(std::vector<int>{1, 9, 3})),
            "plain value 2 is 2, was 9");
  EXPECT_EQ(difference(std::tuple(std::nan("1")), std::tuple(std::nan("2"))),
            "plain values differ in bits that are not shown");
}

TEST(PlainValues, StructureIsTold) {
  const std::string differs = "the structure of the arguments differs: ";
  EXPECT_EQ(difference(std::tuple(std::vector<int>{1}), std::tuple(std::vector<int>{1, 2})),
            differs + "a list of 1, was a list of 2");
  EXPECT_EQ(difference(std::tuple(std::map<int, int>{}), std::tuple(std::map<int, int>{{1, 2}})),
            differs + "a map of 0, was a map of 1");
  EXPECT_EQ(difference(std::tuple(std::optional<int>{}), std::tuple(std::optional<int>{4})),
            differs + "an optional that is not set, was an optional that is set");
  EXPECT_EQ(difference(std::tuple(Tensor{}), std::tuple(zeros({1}))), differs + "an undefined tensor, was a tensor");
}

TEST(PlainValues, ARecompileLimitNamesThem) {
  const auto f = compile([](const Tensor& x, double factor, bool negate) { return mul(x, negate ? -factor : factor); },
                         {.recompile_limit = 2});
  const Tensor x = zeros({4});
  f(x, 1.0, false), f(x, 2.0, false);
  try {
    f(x, 2.0, true);
    FAIL() << "no error";
  } catch (const RecompileLimit& e) {
    EXPECT_NE(std::string(e.what()).find("plain value 1 is 2, was 1"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("plain value 2 is true, was false"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti::graph
