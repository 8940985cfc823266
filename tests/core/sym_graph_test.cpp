#include "tutti/core/sym_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/error.h"

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
  EXPECT_NE((n * m).raw(), (m * n).raw());
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
  SymInt doubled = n;
  for (int i = 0; i < 62; ++i) doubled = doubled + doubled;  // 2^62 paths
  EXPECT_EQ(evaluate(doubled, {1, 0}), int64_t{1} << 62);
  EXPECT_NE(doubled.to_string().find("..."), std::string::npos);
}

TEST_F(SymGraphTest, LongChainsDoNotExhaustTheStack) {
  SymInt sum = n;
  for (int i = 0; i < 200000; ++i) sum = sum + (i % 2 ? m : n);
  EXPECT_EQ(evaluate(sum, {1, 1}), 200001);
}

TEST_F(SymGraphTest, TrueDivisionGuardsBothOperands) {
  EXPECT_EQ(truediv(n, m), 2.5);
  EXPECT_EQ(graph.guards().size(), 2u);
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
