// Every evaluator of integer arithmetic against Python, on the same cases.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/support/number_cases.h"
#include "tutti/core/number.h"
#include "tutti/core/scalar_eval.h"
#include "tutti/core/sym_graph.h"
#include "tutti/core/symfloat.h"

namespace tutti::testing {
namespace {

const std::vector<NumberRow>& rows() {
  static const std::vector<NumberRow> all = python_rows(10000, 20260604);
  return all;
}

bool is_division(NumberOp op) { return op >= NumberOp::floordiv && op <= NumberOp::truediv; }

// The functions of core/number.h that wrap, as tensor kernels use them. They require a divisor that is not zero.
std::optional<NumberAnswer> wrapping_functions(const NumberCase& c) {
  if (is_division(c.op) && c.b == 0) return std::nullopt;
  switch (c.op) {
    case NumberOp::floordiv:
      return NumberAnswer::of(floordiv_i64(c.a, c.b));
    case NumberOp::truncdiv:
      return NumberAnswer::of(truncdiv_i64(c.a, c.b));
    case NumberOp::remainder:
      return NumberAnswer::of(remainder_i64(c.a, c.b));
    case NumberOp::fmod:
      return NumberAnswer::of(fmod_i64(c.a, c.b));
    case NumberOp::truediv:
      return NumberAnswer::of_real(truediv_i64(c.a, c.b));
    case NumberOp::pow:
      return NumberAnswer::of(pow_i64(c.a, c.b));
    default:
      return std::nullopt;
  }
}

std::optional<ScalarOp> scalar_op_of(NumberOp op) {
  static constexpr std::array<ScalarOp, kNumNumberOps> table = {
      ScalarOp::add,      ScalarOp::sub,      ScalarOp::mul,        ScalarOp::neg,  ScalarOp::abs,
      ScalarOp::floordiv, ScalarOp::truncdiv, ScalarOp::remainder,  ScalarOp::fmod, ScalarOp::truediv,
      ScalarOp::pow,      ScalarOp::minimum,  ScalarOp::maximum,    ScalarOp::eq,   ScalarOp::ne,
      ScalarOp::lt,       ScalarOp::le,       ScalarOp::gt,         ScalarOp::ge,   ScalarOp::bit_and,
      ScalarOp::bit_or,   ScalarOp::bit_xor,  ScalarOp::bitwise_not};
  if (op == NumberOp::truediv) return std::nullopt;  // tensors convert to float first: not this table's operation
  return table[static_cast<size_t>(op)];
}

// The folder of recipes.
std::optional<NumberAnswer> folder(const NumberCase& c) {
  const std::optional<ScalarOp> op = scalar_op_of(c.op);
  if (!op) return std::nullopt;
  const DType result = c.op >= NumberOp::eq && c.op <= NumberOp::ge ? DType::boolean : DType::i64;
  const ScalarValue operands[] = {{DType::i64, 0.0, c.a}, {DType::i64, 0.0, c.b}};
  return answer_of([&] {
    const auto value = evaluate_scalar(*op, result, operands, arity_of(*op));
    TUTTI_ASSERT(value.has_value(), "{} does not fold", name_of(*op));
    return NumberAnswer::of(value->i);
  });
}

SymInt apply_sym(NumberOp op, SymInt a, SymInt b) {
  const auto truth = [&](SymBool value) { return SymInt(value ? 1 : 0); };
  switch (op) {
    case NumberOp::add:
      return a + b;
    case NumberOp::sub:
      return a - b;
    case NumberOp::mul:
      return a * b;
    case NumberOp::neg:
      return -a;
    case NumberOp::floordiv:
      return floordiv(a, b);
    case NumberOp::truncdiv:
      return truncdiv(a, b);
    case NumberOp::remainder:
      return remainder(a, b);
    case NumberOp::fmod:
      return fmod(a, b);
    case NumberOp::pow:
      return pow(a, b);
    case NumberOp::minimum:
      return minimum(a, b);
    case NumberOp::maximum:
      return maximum(a, b);
    case NumberOp::eq:
      return truth(a == b);
    case NumberOp::ne:
      return truth(a != b);
    case NumberOp::lt:
      return truth(a < b);
    case NumberOp::le:
      return truth(a <= b);
    case NumberOp::gt:
      return truth(a > b);
    case NumberOp::ge:
      return truth(a >= b);
    default:
      throw InternalError("sizes have no such operation");
  }
}

bool sizes_have(NumberOp op) { return op != NumberOp::abs && op != NumberOp::truediv && op < NumberOp::bit_and; }

// Sizes that are integers.
std::optional<NumberAnswer> concrete_sizes(const NumberCase& c) {
  if (c.op == NumberOp::truediv)
    return answer_of([&] { return NumberAnswer::of_real(truediv(SymInt(c.a), c.b).value()); });
  if (!sizes_have(c.op)) return std::nullopt;
  return answer_of([&] { return NumberAnswer::of(apply_sym(c.op, c.a, c.b).value()); });
}

// Sizes that are symbols: built once at other hints, evaluated with the operands bound.
std::optional<NumberAnswer> symbolic_sizes(const NumberCase& c) {
  if (!sizes_have(c.op) || (c.op >= NumberOp::eq && c.op <= NumberOp::ge)) return std::nullopt;
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const SymInt a = graph.symbol("a", 5), b = graph.symbol("b", 3);
  const SymInt expression = apply_sym(c.op, a, b);
  const int64_t bindings[] = {c.a, c.b};
  return answer_of([&] { return NumberAnswer::of(graph.evaluate(expression, bindings)); });
}

// Comparisons of symbols: the guard records the truth at the hints.
std::optional<NumberAnswer> symbolic_guards(const NumberCase& c) {
  if (c.op < NumberOp::eq || c.op > NumberOp::ge) return std::nullopt;
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const SymInt a = graph.symbol("a", c.a), b = graph.symbol("b", c.b);
  return NumberAnswer::of(apply_sym(c.op, a, b).value());
}

TEST(NumberProtocol, WrappingFunctionsAnswerAsPython) {
  EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, wrapping_functions), 2000);
}

TEST(NumberProtocol, TheFolderAnswersAsPython) { EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, folder), 9000); }

TEST(NumberProtocol, IntegerSizesAnswerAsPython) {
  EXPECT_GT(expect_answers(rows(), &NumberRow::checked, concrete_sizes), 7000);
}

TEST(NumberProtocol, SymbolicSizesAnswerAsPython) {
  EXPECT_GT(expect_answers(rows(), &NumberRow::checked, symbolic_sizes), 4000);
}

TEST(NumberProtocol, GuardsAnswerAsPython) {
  EXPECT_GT(expect_answers(rows(), &NumberRow::checked, symbolic_guards), 2000);
}

TEST(NumberProtocol, TheCasesReachEveryKindOfAnswer) {
  int seen[5] = {};
  for (const NumberRow& row : rows()) ++seen[row.checked.kind];
  for (int count : seen) EXPECT_GT(count, 50);
}

// Python gives a zero remainder the sign of the divisor, tensors keep that of fmod; == does not see the difference.
TEST(NumberProtocol, FloatDivisionsAnswerAsPython) {
  std::mt19937_64 random(5);
  const auto operand = [&] {
    const double special[] = {1.0, -1.0, 0.5, -0.1, 3.0, -7.0, 1e300, -1e-300, 5e-324, INFINITY, -INFINITY, 0x1p53};
    if (random() % 3 == 0) return special[random() % std::size(special)];
    const double x = std::bit_cast<double>(random());
    return std::isnan(x) || random() % 2 ? static_cast<double>(static_cast<int64_t>(random() % 2001) - 1000) / 8 + 1e-3
                                         : x;
  };
  std::vector<std::pair<double, double>> cases(2000);
  std::vector<std::string> questions;
  for (auto& [a, b] : cases) {
    a = operand();
    b = operand();
    questions.push_back(fmt::format("float_floordiv {:a} {:a}", a, b));
    questions.push_back(fmt::format("float_remainder {:a} {:a}", a, b));
  }
  const std::vector<std::string> answers = ask_python(questions);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [a, b] = cases[i];
    const double results[] = {floordiv_f64(a, b), remainder_f64(a, b)};
    for (size_t k = 0; k < 2; ++k) {
      const double expected = parse_answer(answers[2 * i + k]).f;
      ASSERT_TRUE(results[k] == expected || (std::isnan(results[k]) && std::isnan(expected)))
          << questions[2 * i + k] << " is " << results[k] << ", Python says " << expected;
    }
  }
}

TEST(NumberProtocol, FloatDivisionByZeroFollowsIeee) {
  EXPECT_EQ(floordiv_f64(1.0, 0.0), INFINITY);
  EXPECT_EQ(floordiv_f64(-1.0, 0.0), -INFINITY);
  EXPECT_TRUE(std::isnan(floordiv_f64(0.0, 0.0)));
  EXPECT_TRUE(std::isnan(remainder_f64(1.0, 0.0)));
}

TEST(NumberProtocol, AZeroFloatRemainderKeepsTheSignOfTheDividend) {
  EXPECT_TRUE(std::signbit(remainder_f64(-6.0, 3.0)));
  EXPECT_FALSE(std::signbit(remainder_f64(6.0, -3.0)));
}

TEST(NumberProtocol, AFloatRemainderIsExactForLargeQuotients) {
  EXPECT_EQ(remainder_f64(0x1p60, 3.0), 1.0);
  EXPECT_EQ(remainder_f64(5.0, INFINITY), 5.0);
  EXPECT_EQ(remainder_f64(-5.0, INFINITY), INFINITY);
}

}  // namespace
}  // namespace tutti::testing
