#include "tutti/core/sym_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/core/symfloat.h"

namespace tutti {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

class SymGraphTest : public ::testing::Test {
 protected:
  int64_t evaluate(SymInt expression, std::vector<int64_t> bindings) { return graph.evaluate(expression, bindings); }

  SymGraph graph;
  SymGraph::Scope scope{graph};
  SymInt n = graph.symbol("n", 10);
  SymInt m = graph.symbol("m", 4);
};

TEST_F(SymGraphTest, EvaluatesAtOtherSizesThanTheTracedOnes) {
  const SymInt expression = floordiv(n * 3 + 1, m) - remainder(n, m);
  EXPECT_TRUE(expression.is_symbolic());
  EXPECT_EQ(evaluate(expression, {10, 4}), 7 - 2);
  EXPECT_EQ(evaluate(expression, {-7, 3}), -7 - 2);
}

TEST_F(SymGraphTest, TheSameExpressionIsTheSameNode) {
  EXPECT_EQ((n * m + 1).raw(), (n * m + 1).raw());
  EXPECT_EQ((n * m).raw(), (m * n).raw());
  EXPECT_NE((n + m).raw(), (n * m).raw());
}

TEST_F(SymGraphTest, EqualSumsAndProductsLookEqual) {
  EXPECT_EQ((n * 2 * m * 4).raw(), (m * (n * 8)).raw());
  EXPECT_EQ((n + m + 3 - n).raw(), (m + 3).raw());
  EXPECT_EQ((2 * (n + 1) - n - n).value(), 2);
  EXPECT_EQ((n * 0).value(), 0);
  EXPECT_EQ(floordiv(n * m * 8, m * 2).raw(), (n * 4).raw());
  EXPECT_EQ(remainder(n * m, n).value(), 0);
  EXPECT_EQ(floordiv(n, 1).raw(), n.raw());
  EXPECT_TRUE(floordiv(n * 3, 2).is_symbolic());
  EXPECT_TRUE(n * m + 1 > m * n);
  EXPECT_FALSE(n + 1 == n);
  ASSERT_EQ(graph.guards().size(), 2u);  // that m * 2 and n are not 0
  EXPECT_EQ(graph.to_string(graph.guards()[0].node), "((m * 2) != 0)");
}

// Every expression, whatever rules it went through, is what its operations give one by one.
TEST_F(SymGraphTest, RewritesHoldForAllSmallValues) {
  uint64_t state = 1;
  const auto below = [&](size_t bound) {
    return ((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % bound;
  };
  constexpr SymOp kOps[] = {SymOp::add,      SymOp::sub,      SymOp::mul,       SymOp::neg,
                            SymOp::floordiv, SymOp::truncdiv, SymOp::remainder, SymOp::fmod,
                            SymOp::minimum,  SymOp::maximum,  SymOp::eq,        SymOp::ne,
                            SymOp::lt,       SymOp::le,       SymOp::gt,        SymOp::ge};
  struct Step {
    SymOp op;
    size_t a, b;
  };
  for (int round = 0; round < 400; ++round) {
    SymGraph own;
    SymGraph::Scope running(own);
    std::vector<int64_t> nodes = {own.symbol("x", 3).node(), own.symbol("y", 2).node()};
    for (const int64_t c : {-3, -1, 0, 1, 2}) nodes.push_back(own.constant(c));
    const size_t leaves = nodes.size();
    std::vector<Step> steps;
    while (steps.size() < 8) {
      const Step s{kOps[below(std::size(kOps))], below(nodes.size()), below(nodes.size())};
      try {
        nodes.push_back(own.make(s.op, nodes[s.a], nodes[s.b]));
        steps.push_back(s);
      } catch (const Error&) {  // constants that divide by zero or overflow
      }
    }
    for (int64_t x = -9; x <= 9; ++x) {
      for (int64_t y = -9; y <= 9; ++y) {
        const SymValues values(own, std::vector<int64_t>{x, y});
        if (!values.guards_hold()) continue;
        std::vector<std::optional<int64_t>> expected = {x, y, -3, -1, 0, 1, 2};
        for (size_t i = 0; i < steps.size(); ++i) {
          const auto &a = expected[steps[i].a], &b = expected[steps[i].b];
          std::optional<int64_t> value;
          try {
            if (a && b) value = evaluate_sym_op(steps[i].op, *a, *b);
          } catch (const Error&) {
          }
          expected.push_back(value);
          if (!value) continue;
          ASSERT_EQ(values.of_node(nodes[leaves + i]), *value)
              << own.to_string(nodes[leaves + i]) << " at " << x << ", " << y;
        }
      }
    }
  }
}

TEST_F(SymGraphTest, ArithmeticOfConstantsFolds) {
  const SymInt five = SymInt(2) + 3;
  EXPECT_FALSE(five.is_symbolic());
  EXPECT_EQ(graph.node(graph.make(SymOp::mul, graph.constant(6), graph.constant(7))).a, 42);
}

TEST_F(SymGraphTest, NestedFloorDivisionsWithNegativeDivisorsAreKept) {
  const SymInt nested = floordiv(floordiv(n, 2), -3);
  for (int64_t value = -9; value <= 9; ++value) {
    const int64_t half = value >= 0 ? value / 2 : (value - 1) / 2;
    EXPECT_EQ(evaluate(nested, {value, 0}), static_cast<int64_t>(std::floor(half / -3.0))) << value;
  }
}

TEST_F(SymGraphTest, AComparisonGuardsTheAnswerAtTheTracedSizes) {
  EXPECT_TRUE(n > m);
  EXPECT_FALSE(n == m);
  ASSERT_EQ(graph.guards().size(), 2u);
  EXPECT_EQ(graph.guards()[0].answer, 1);
  EXPECT_EQ(graph.guards()[1].answer, 0);
  EXPECT_EQ(graph.to_string(graph.guards()[0].node), "(n > m)");
}

TEST_F(SymGraphTest, AComparisonThatNobodyReadsIsNoGuard) {
  [[maybe_unused]] const SymBool unread = n < m;
  EXPECT_TRUE(graph.guards().empty());
}

TEST_F(SymGraphTest, GuardIntRecordsTheInteger) {
  EXPECT_EQ((n + m).guard_int(), 14);
  ASSERT_EQ(graph.guards().size(), 1u);
  EXPECT_EQ(graph.guards()[0].answer, 14);
}

TEST_F(SymGraphTest, AskingASymbolForItsIntegerNamesTheExpression) {
  try {
    (n * 2).value();
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("(n * 2)"), std::string::npos) << e.what();
  }
}

TEST_F(SymGraphTest, OverflowAndZeroDivisionAreFoundAtEvaluation) {
  EXPECT_THROW(evaluate(n * n, {kMax, 0}), SymIntOverflow);
  EXPECT_THROW(evaluate(floordiv(n, m), {1, 0}), IntegerDivideByZero);
}

TEST_F(SymGraphTest, AnOperationThatIsNotAskedForDoesNotFail) {
  [[maybe_unused]] const SymInt unused = floordiv(n, m);
  EXPECT_EQ(evaluate(n + m + 1, {1, 0}), 2);
}

TEST_F(SymGraphTest, AMissingBindingIsNamed) {
  try {
    evaluate(n + m, {3});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("symbol 'm' has no value"), std::string::npos) << e.what();
  }
}

TEST_F(SymGraphTest, ASharedNodeIsComputedOnce) {
  SymInt shared = n;
  for (int i = 0; i < 62; ++i) shared = floordiv(shared * 2 + 1, 2) + remainder(shared, m + 2);  // 3^62 paths
  EXPECT_EQ(evaluate(shared, {1, 0}), 2);
  EXPECT_NE(shared.to_string().find("..."), std::string::npos);
}

TEST_F(SymGraphTest, LongChainsDoNotExhaustTheStack) {
  SymInt sum = n;
  for (int i = 0; i < 200000; ++i) sum = sum + (i % 2 ? m : n);
  EXPECT_EQ(evaluate(sum, {1, 1}), 200001);
}

TEST_F(SymGraphTest, TrueDivisionIsANumberThatDependsOnSizes) {
  const SymFloat half = truediv(n, m);
  EXPECT_TRUE(half.is_symbolic());
  EXPECT_TRUE(graph.guards().empty());
  EXPECT_EQ(half.to_string(), "(n / m)");
  EXPECT_EQ(half.guard_double(), 2.5);
  EXPECT_EQ(graph.guards().size(), 1u);
  EXPECT_TRUE(sqrt(half * 2.0 + 1.0) > 2.0);
  EXPECT_EQ(graph.to_string(graph.guards()[1].node), "(sqrt((((n / m) * 2) + 1)) > 2)");
  EXPECT_THROW(half.value(), UsageError);
}

TEST(SymGraph, ASymbolAfterItsTraceIsAUsageError) {
  std::optional<SymInt> escaped;
  {
    SymGraph graph;
    SymGraph::Scope scope(graph);
    escaped = graph.symbol("n", 3);
  }
  EXPECT_THROW(*escaped + 1, UsageError);
  EXPECT_THROW(escaped->guard_int(), UsageError);
  EXPECT_THROW(escaped->value(), UsageError);
  EXPECT_EQ(escaped->to_string(), "<symbol of an ended trace>");
}

TEST(SymGraph, ScopesNest) {
  SymGraph outer, inner;
  EXPECT_EQ(SymGraph::current(), nullptr);
  SymGraph::Scope a(outer);
  {
    SymGraph::Scope b(inner);
    EXPECT_EQ(SymGraph::current(), &inner);
  }
  EXPECT_EQ(SymGraph::current(), &outer);
}

}  // namespace
}  // namespace tutti
