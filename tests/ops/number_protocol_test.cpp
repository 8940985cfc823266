// Eager tensors and generated kernels against Python's integers, on the cases of every other evaluator.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/support/number_cases.h"
#include "tutti/codegen/kernel.h"
#include "tutti/core/number.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/pointwise/binary_row.h"

namespace tutti::testing {
namespace {

const std::vector<NumberRow>& rows() {
  static const std::vector<NumberRow> all = python_rows(10000, 20260604);
  return all;
}

// Integer tensors divide truly as f32, unlike Python: not an operation of this table.
bool has_answer(NumberOp op) { return op != NumberOp::truediv; }
bool is_unary(NumberOp op) { return op == NumberOp::neg || op == NumberOp::abs || op == NumberOp::bitwise_not; }
bool divides(NumberOp op) { return op >= NumberOp::floordiv && op <= NumberOp::fmod; }
const char* op_name(NumberOp op) { return kNumberOpNames[static_cast<int>(op)]; }

Tensor run(NumberOp op, const Tensor& a, const Tensor& b) {
  return is_unary(op) ? apply1(find_op(op_name(op)), {&a, 1}) : call_op(find_op(op_name(op)), {}, a, b);
}

NumberAnswer element(const Tensor& t, int64_t i) {
  return NumberAnswer::of(t.dtype() == DType::boolean ? t.data<bool>()[i] : t.data<int64_t>()[i]);
}

using Key = std::tuple<NumberOp, int64_t, int64_t>;

// All cases of an operation as one long tensor, so that whole vectors compute; zero divisors alone, as they throw.
std::map<Key, NumberAnswer> long_tensors(const std::function<Tensor(NumberOp, const Tensor&, const Tensor&)>& compute) {
  std::map<Key, NumberAnswer> answers;
  for (int index = 0; index < kNumNumberOps; ++index) {
    const NumberOp op = static_cast<NumberOp>(index);
    if (!has_answer(op)) continue;
    std::vector<int64_t> a, b;
    for (const NumberRow& row : rows()) {
      const NumberCase& c = row.number_case;
      if (c.op != op) continue;
      if (divides(op) && c.b == 0) {
        answers[{op, c.a, c.b}] = answer_of(
            [&] { return element(compute(op, Tensor::of<int64_t>({c.a, 1}), Tensor::of<int64_t>({c.b, 1})), 0); });
        continue;
      }
      a.push_back(c.a);
      b.push_back(c.b);
    }
    const Tensor result = compute(op, Tensor::of(a), Tensor::of(b));
    for (size_t i = 0; i < a.size(); ++i) answers[{op, a[i], b[i]}] = element(result, static_cast<int64_t>(i));
  }
  return answers;
}

NumberEvaluator looked_up(const std::map<Key, NumberAnswer>& answers) {
  return [&answers](const NumberCase& c) -> std::optional<NumberAnswer> {
    const auto found = answers.find({c.op, c.a, c.b});
    return found == answers.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(NumberProtocol, LongTensorsAnswerAsPython) {
  const auto answers = long_tensors(run);
  EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, looked_up(answers)), 9000);
}

TEST(NumberProtocol, TensorsOfOneElementAnswerAsPython) {
  const NumberEvaluator evaluate = [](const NumberCase& c) -> std::optional<NumberAnswer> {
    if (!has_answer(c.op)) return std::nullopt;
    return answer_of([&] { return element(run(c.op, Tensor::scalar(c.a), Tensor::scalar(c.b)), 0); });
  };
  EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, evaluate), 9000);
}

TEST(NumberProtocol, ATensorAndANumberAnswerAsPython) {
  const NumberEvaluator evaluate = [](const NumberCase& c) -> std::optional<NumberAnswer> {
    if (!has_answer(c.op) || is_unary(c.op)) return std::nullopt;
    if (c.op == NumberOp::pow && c.b < 0) return std::nullopt;  // refused: tests/ops/binary_test.cpp
    const OpDef& op = find_op(fmt::format("{}_scalar", op_name(c.op)));
    return answer_of(
        [&] { return element(call_op(op, Attrs::of(pointwise::ScalarAttrs{Scalar(c.b)}), Tensor::scalar(c.a)), 0); });
  };
  EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, evaluate), 7000);
}

TEST(NumberProtocol, ANumberAndATensorAnswerAsPython) {
  const NumberEvaluator evaluate = [](const NumberCase& c) -> std::optional<NumberAnswer> {
    if (!has_answer(c.op) || is_unary(c.op)) return std::nullopt;
    const OpDef& op = find_op(fmt::format("{}_of_scalar", op_name(c.op)));
    return answer_of(
        [&] { return element(call_op(op, Attrs::of(pointwise::ScalarAttrs{Scalar(c.a)}), Tensor::scalar(c.b)), 0); });
  };
  EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, evaluate), 7000);
}

// ---- kernels without the engine -------------------------------------------------------------------------------------

// out = op(a, b) from the code generator alone.
Tensor run_kernel(NumberOp op, const Tensor& a, const Tensor& b) {
  ScalarOp scalar = ScalarOp::neg;  // the first that is no leaf
  while (name_of(scalar) != op_name(op)) {
    scalar = static_cast<ScalarOp>(static_cast<int>(scalar) + 1);
    TUTTI_CHECK(static_cast<int>(scalar) < kNumScalarOps, "no scalar op is called {}", op_name(op));
  }
  ExprPool pool;
  const Expr x = pool.arg(0, DType::i64);
  const Expr y = is_unary(op) ? apply_scalar(scalar, x) : apply_scalar(scalar, x, pool.arg(1, DType::i64));
  const codegen::OperandSpec operand{DType::i64, codegen::StrideClass::contiguous};
  codegen::KernelSpec spec;
  spec.inputs = {operand, operand};
  spec.outputs = {{y.dtype(), codegen::StrideClass::contiguous}};
  spec.nodes = pool.nodes();
  spec.results = {y.id()};
  spec.name = op_name(op);
  const Tensor out = Tensor::empty(a.extents(), y.dtype());
  const codegen::OperandCall operands[] = {{a.raw_data()}, {b.raw_data()}, {out.raw_data()}};
  uint32_t error = 0;
  const codegen::KernelCall call{.operands = operands, .params = nullptr, .n_inner = a.numel(), .error = &error};
  codegen::kernel_for(spec).entry(&call);
  if (error & 1) throw IntegerDivideByZero(op_name(op));
  return out;
}

TEST(NumberProtocol, GeneratedKernelsAnswerAsPython) {
  const auto answers = long_tensors(run_kernel);
  EXPECT_GT(expect_answers(rows(), &NumberRow::wrapped, looked_up(answers)), 9000);
}

// ---- narrow integers ------------------------------------------------------------------------------------------------

struct NarrowOp {
  const char* name;
  int64_t (*value)(int64_t, int64_t);
};
class NarrowIntegers : public ::testing::TestWithParam<NarrowOp> {};
INSTANTIATE_TEST_SUITE_P(, NarrowIntegers,
                         ::testing::Values(NarrowOp{"floordiv", floordiv_i64}, NarrowOp{"truncdiv", truncdiv_i64},
                                           NarrowOp{"remainder", remainder_i64}, NarrowOp{"fmod", fmod_i64},
                                           NarrowOp{"pow", pow_i64}),
                         [](const auto& info) { return std::string(info.param.name); });

// Every pair of the type (i8, u8), cut to its width as two's complement, -128 by -1 too.
template <class T>
void expect_all_pairs(const NarrowOp& op) {
  std::vector<T> a, b;
  for (int x = std::numeric_limits<T>::min(); x <= std::numeric_limits<T>::max(); ++x) {
    for (int y = std::numeric_limits<T>::min(); y <= std::numeric_limits<T>::max(); ++y) {
      if (y == 0) continue;
      a.push_back(static_cast<T>(x));
      b.push_back(static_cast<T>(y));
    }
  }
  const Tensor result = call_op(find_op(op.name), {}, Tensor::of(a), Tensor::of(b));
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(result.data<T>()[i], static_cast<T>(op.value(a[i], b[i])))
        << op.name << "(" << +a[i] << ", " << +b[i] << ")";
  }
}

TEST_P(NarrowIntegers, OfEightBitsWrapForEveryPair) {
  expect_all_pairs<int8_t>(GetParam());
  expect_all_pairs<uint8_t>(GetParam());
}

TEST(NumberProtocol, TheSmallestIntegerByMinusOneDoesNotTrap) {
  const Tensor i32 = Tensor::of(std::vector<int32_t>(37, std::numeric_limits<int32_t>::min()));
  const Tensor i64 = Tensor::of(std::vector<int64_t>(37, std::numeric_limits<int64_t>::min()));
  for (int64_t i = 0; i < 37; ++i) {
    EXPECT_EQ(floordiv(i32, -1).data<int32_t>()[i], std::numeric_limits<int32_t>::min());
    EXPECT_EQ(remainder(i32, -1).data<int32_t>()[i], 0);
    EXPECT_EQ(truncdiv(i64, -1).data<int64_t>()[i], std::numeric_limits<int64_t>::min());
    EXPECT_EQ(fmod(i64, -1).data<int64_t>()[i], 0);
  }
}

TEST(NumberProtocol, AZeroAmongManyDivisorsIsReported) {
  std::vector<int64_t> divisors(100, 3);
  for (const size_t place : {0u, 50u, 99u}) {
    std::vector<int64_t> b = divisors;
    b[place] = 0;
    EXPECT_THROW(floordiv(Tensor::of(divisors), Tensor::of(b)), IntegerDivideByZero) << place;
  }
  EXPECT_NO_THROW(floordiv(Tensor::of(divisors), Tensor::of(divisors)));  // the unused lanes of the tail divide by 1
}

}  // namespace
}  // namespace tutti::testing
