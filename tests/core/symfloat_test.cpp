#include "tutti/core/symfloat.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/core/number.h"
#include "tutti/core/sym_graph.h"

namespace tutti {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Numbers of the host and the same numbers as symbols: the halves of integers.
TEST(SymFloat, SymbolsAnswerAsDoubles) {
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const SymFloat x = truediv(graph.symbol("x", 3), 2), y = truediv(graph.symbol("y", 5), 2);
  struct Case {
    SymFloat symbolic;
    double (*expected)(double, double);
  };
  const Case cases[] = {
      {x + y, [](double a, double b) { return a + b; }},
      {x - y, [](double a, double b) { return a - b; }},
      {x * y, [](double a, double b) { return a * b; }},
      {-x, [](double a, double) { return -a; }},
      {x / y, [](double a, double b) { return a / b; }},
      {floordiv(x, y), [](double a, double b) { return floordiv_f64(a, b); }},
      {remainder(x, y), [](double a, double b) { return remainder_f64(a, b); }},
      {fmod(x, y), [](double a, double b) { return std::fmod(a, b); }},
      {minimum(x, y), [](double a, double b) { return std::min(a, b); }},
      {maximum(x, y), [](double a, double b) { return std::max(a, b); }},
      {pow(x * x, 1.5), [](double a, double) { return std::pow(a * a, 1.5); }},
      {sqrt(x * x + y * y), [](double a, double b) { return std::sqrt(a * a + b * b); }},
  };
  for (int64_t a = -9; a <= 9; ++a) {
    for (int64_t b = -9; b <= 9; ++b) {
      if (b == 0) continue;
      const SymValues values(graph, std::vector<int64_t>{a, b});
      const double da = static_cast<double>(a) / 2, db = static_cast<double>(b) / 2;
      for (size_t i = 0; i < std::size(cases); ++i) {
        const double got = std::bit_cast<double>(values.of_node(cases[i].symbolic.node())),
                     expected = cases[i].expected(da, db);
        EXPECT_EQ(std::bit_cast<int64_t>(got), std::bit_cast<int64_t>(expected))
            << i << ": " << got << " for " << da << ", " << db << ", expected " << expected;
      }
    }
  }
}

TEST(SymFloat, NumbersOfTheHostNeedNoGraph) {
  EXPECT_EQ((SymFloat(1.5) + 2).value(), 3.5);
  EXPECT_EQ(floordiv(SymFloat(-7.0), 2.0).value(), -4.0);
  EXPECT_EQ(remainder(SymFloat(-7.0), 2.0).value(), 1.0);
  EXPECT_EQ(fmod(SymFloat(-7.0), 2.0).value(), -1.0);
  EXPECT_TRUE(SymFloat(SymInt(3)) < 3.5);
  EXPECT_EQ((SymFloat(kInf) * 2.0).value(), kInf);
}

TEST(SymFloat, DividingByZeroIsAnError) {
  EXPECT_THROW(SymFloat(1.0) / 0.0, IntegerDivideByZero);
  EXPECT_THROW(floordiv(SymFloat(1.0), 0.0), IntegerDivideByZero);
  EXPECT_THROW(remainder(SymFloat(1.0), -0.0), IntegerDivideByZero);
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const SymFloat quotient = SymFloat(1.0) / SymFloat(graph.symbol("x", 3));
  EXPECT_THROW(SymValues(graph, std::vector<int64_t>{0}).of_node(quotient.node()), IntegerDivideByZero);
}

TEST(SymFloat, CannotLeaveItsTrace) {
  SymFloat escaped;
  {
    SymGraph graph;
    SymGraph::Scope scope(graph);
    escaped = truediv(graph.symbol("n", 3), 2);
  }
  EXPECT_THROW(escaped + 1.0, UsageError);
  EXPECT_EQ(escaped.to_string(), "<number of an ended trace>");
}

}  // namespace
}  // namespace tutti
