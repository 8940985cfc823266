// Cases of the number protocol with the answers of python3, for every evaluator of integer arithmetic.
//
// python_rows() makes random cases rich in extremes and asks Python, whose integers have no width. A row says what two
// kinds of arithmetic must answer: `wrapped` for tensors and recipes, `checked` for sizes. To test one more evaluator,
// write a function from NumberCase to NumberAnswer (or nothing, for an operation it does not have) and call
// expect_answers().
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "tutti/core/error.h"

namespace tutti::testing {

enum class NumberOp {
  add,
  sub,
  mul,
  neg,
  abs,
  floordiv,
  truncdiv,
  remainder,
  fmod,
  truediv,
  pow,
  minimum,
  maximum,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  bit_and,
  bit_or,
  bit_xor,
  bitwise_not
};
inline constexpr const char* kNumberOpNames[] = {"add",      "sub",       "mul",    "neg",     "abs",        "floordiv",
                                                 "truncdiv", "remainder", "fmod",   "truediv", "pow",        "minimum",
                                                 "maximum",  "eq",        "ne",     "lt",      "le",         "gt",
                                                 "ge",       "bit_and",   "bit_or", "bit_xor", "bitwise_not"};
inline constexpr int kNumNumberOps = static_cast<int>(std::size(kNumberOpNames));

struct NumberCase {
  NumberOp op;
  int64_t a, b;  // unary operations ignore b
};

struct NumberAnswer {
  enum Kind { integer, real, zero_division, overflow, negative_exponent } kind;
  int64_t i = 0;
  double f = 0.0;
  friend bool operator==(const NumberAnswer& x, const NumberAnswer& y) {
    return x.kind == y.kind && x.i == y.i && std::bit_cast<uint64_t>(x.f) == std::bit_cast<uint64_t>(y.f);
  }
  static NumberAnswer of(int64_t value) { return {integer, value}; }
  static NumberAnswer of_real(double value) { return {real, 0, value}; }
};

struct NumberRow {
  NumberCase number_case;
  NumberAnswer wrapped, checked;
};

inline std::string to_string(const NumberCase& c) {
  return fmt::format("{}({}, {})", kNumberOpNames[static_cast<int>(c.op)], c.a, c.b);
}

inline std::string to_string(const NumberAnswer& answer) {
  switch (answer.kind) {
    case NumberAnswer::integer:
      return std::to_string(answer.i);
    case NumberAnswer::real:
      return fmt::format("{:a}", answer.f);
    case NumberAnswer::zero_division:
      return "ZeroDivisionError";
    case NumberAnswer::overflow:
      return "overflow";
    case NumberAnswer::negative_exponent:
      return "negative exponent refused";
  }
  return "";
}

// Random integers of every magnitude, with the borders of int64 and small numbers often among them.
inline int64_t random_operand(std::mt19937_64& random) {
  constexpr int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  constexpr int64_t special[] = {low,
                                 low + 1,
                                 high,
                                 high - 1,
                                 0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 3,
                                 -3,
                                 7,
                                 -7,
                                 63,
                                 64,
                                 int64_t{1} << 31,
                                 1 << 30,
                                 int64_t{1} << 32,
                                 -(int64_t{1} << 31),
                                 int64_t{1} << 53,
                                 (int64_t{1} << 53) + 1};
  switch (random() % 4) {
    case 0:
      return special[random() % std::size(special)];
    case 1:
      return static_cast<int64_t>(random() % 41) - 20;
    default:
      return static_cast<int64_t>(random()) >> (random() % 64);
  }
}

// Lines for the oracle -> its lines.
inline std::vector<std::string> ask_python(const std::vector<std::string>& questions) {
  char folder[] = "/tmp/tutti_numbers_XXXXXX";
  TUTTI_CHECK_ENV(mkdtemp(folder) != nullptr, "no temporary folder for the questions to python3");
  const std::string asked = fmt::format("{}/asked", folder), answered = fmt::format("{}/answered", folder);
  {
    std::ofstream out(asked);
    for (const std::string& q : questions) out << q << '\n';
  }
  const int status = std::system(
      fmt::format("python3 '{}/tests/support/number_oracle.py' < {} > {}", TUTTI_SOURCE_DIR, asked, answered).c_str());
  std::vector<std::string> lines;
  {
    std::ifstream in(answered);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  std::remove(asked.c_str());
  std::remove(answered.c_str());
  std::remove(folder);
  TUTTI_CHECK_ENV(status == 0 && lines.size() == questions.size(),
                  "python3 answered {} of {} questions (exit {}); it is in packages.txt", lines.size(),
                  questions.size(), status);
  return lines;
}

inline NumberAnswer parse_answer(const std::string& word) {
  if (word == "zero") return {NumberAnswer::zero_division};
  if (word == "overflow") return {NumberAnswer::overflow};
  if (word == "negative") return {NumberAnswer::negative_exponent};
  if (word.starts_with("f:")) return NumberAnswer::of_real(std::strtod(word.c_str() + 2, nullptr));
  return NumberAnswer::of(std::strtoll(word.c_str() + 2, nullptr, 10));
}

inline std::vector<NumberRow> python_rows(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<NumberRow> rows(static_cast<size_t>(count));
  std::vector<std::string> questions;
  for (size_t i = 0; i < rows.size(); ++i) {
    NumberCase& c = rows[i].number_case;
    c = {static_cast<NumberOp>(i % kNumNumberOps), random_operand(random), random_operand(random)};
    questions.push_back(fmt::format("{} {} {}", kNumberOpNames[static_cast<int>(c.op)], c.a, c.b));
  }
  const std::vector<std::string> answers = ask_python(questions);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::istringstream words(answers[i]);
    std::string wrapped, checked;
    words >> wrapped >> checked;
    rows[i].wrapped = parse_answer(wrapped);
    rows[i].checked = parse_answer(checked);
  }
  return rows;
}

// Runs `compute`, turning the errors of the protocol into answers.
inline NumberAnswer answer_of(const std::function<NumberAnswer()>& compute) {
  try {
    return compute();
  } catch (const IntegerDivideByZero&) {
    return {NumberAnswer::zero_division};
  } catch (const SymIntOverflow&) {
    return {NumberAnswer::overflow};
  } catch (const UsageError&) {
    return {NumberAnswer::negative_exponent};
  }
}

using NumberEvaluator = std::function<std::optional<NumberAnswer>(const NumberCase&)>;

// Compares `evaluate` with the `expected` answers (&NumberRow::wrapped or &NumberRow::checked) and fails at the first
// ten differences. Returns how many rows the evaluator answered, for the caller to bound from below.
inline int expect_answers(const std::vector<NumberRow>& rows, NumberAnswer NumberRow::* expected,
                          const NumberEvaluator& evaluate) {
  int answered = 0, wrong = 0;
  for (const NumberRow& row : rows) {
    const std::optional<NumberAnswer> answer = evaluate(row.number_case);
    if (!answer) continue;
    ++answered;
    if (*answer == row.*expected) continue;
    ADD_FAILURE() << to_string(row.number_case) << " is " << to_string(*answer) << ", Python says "
                  << to_string(row.*expected);
    if (++wrong == 10) break;
  }
  return answered;
}

}  // namespace tutti::testing
