#include "tutti/core/expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "tutti/core/scalar_eval.h"

namespace tutti {
namespace {

const ExprNode& node_of(Expr e) { return e.pool()->nodes()[static_cast<size_t>(e.id())]; }

void expect_constant(Expr e, double value) {
  ASSERT_EQ(node_of(e).op, ScalarOp::constant);
  EXPECT_EQ(node_of(e).f, value);
}

void expect_constant_int(Expr e, int64_t value) {
  ASSERT_EQ(node_of(e).op, ScalarOp::constant);
  EXPECT_EQ(node_of(e).i, value);
}

TEST(ScalarOp, EveryOpHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumScalarOps; ++i) {
    const ScalarOp op = static_cast<ScalarOp>(i);
    EXPECT_FALSE(name_of(op).empty()) << i;
    names.insert(name_of(op));
    EXPECT_GE(arity_of(op), 0);
    EXPECT_LE(arity_of(op), 3);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumScalarOps));
  EXPECT_EQ(name_of(ScalarOp::philox), "philox");
  EXPECT_EQ(name_of(ScalarOp::pow), "pow");
  EXPECT_EQ(arity_of(ScalarOp::where), 3);
}

TEST(ExprPool, AStorageTypeIsLoadedAsItsComputeType) {
  ExprPool pool;
  EXPECT_EQ(pool.arg(0, DType::bf16).dtype(), DType::f32);
  EXPECT_EQ(pool.arg(0, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(pool.arg(0, DType::u8).dtype(), DType::u8);
}

TEST(ExprPool, IdenticalNodesAreMadeOnce) {
  ExprPool pool;
  const Expr x = pool.arg(0, DType::f32), y = pool.arg(1, DType::f32);
  EXPECT_NE(x.id(), y.id());
  EXPECT_EQ((x * y + x).id(), (x * y + x).id());
  EXPECT_NE((x - y).id(), (y - x).id());
}

TEST(ExprPool, MinusZeroIsNotZero) {
  ExprPool pool;
  EXPECT_NE(pool.constant(0.0, DType::f32).id(), pool.constant(-0.0, DType::f32).id());
}

TEST(ExprPool, AConstantIsRoundedToItsType) {
  ExprPool pool;
  expect_constant(pool.constant(0.1, DType::f32), static_cast<double>(0.1f));
  expect_constant(pool.constant(0.1, DType::f64), 0.1);
  expect_constant_int(pool.constant_int(300, DType::u8), 44);
  expect_constant_int(pool.constant_int(5, DType::boolean), 1);
}

TEST(ExprPool, AnIntegerConstantOutOfRangeIsRefused) {
  ExprPool pool;
  for (double value : {1e19, -1e19, std::nan("")}) EXPECT_THROW(pool.constant(value, DType::i64), UsageError) << value;
}

TEST(Folding, ArithmeticRoundsOncePerOperation) {
  ExprPool pool;
  const Expr a = pool.constant(0.1, DType::f32), b = pool.constant(0.2, DType::f32);
  expect_constant(a + b, 0.1f + 0.2f);
  expect_constant(a / b, 0.1f / 0.2f);
  expect_constant(a * b - a, 0.1f * 0.2f - 0.1f);
  expect_constant(apply_scalar(ScalarOp::sqrt, a), std::sqrt(0.1f));
  expect_constant(2.0 * pool.constant(0.1, DType::f64) + 1.0, 2.0 * 0.1 + 1.0);
}

TEST(Folding, TranscendentalsStayInTheKernel) {
  ExprPool pool;
  const Expr one = pool.constant(1.0, DType::f32);
  for (ScalarOp op : {ScalarOp::exp, ScalarOp::log, ScalarOp::tanh, ScalarOp::rsqrt, ScalarOp::sigmoid})
    EXPECT_EQ(node_of(apply_scalar(op, one)).op, op);
  EXPECT_EQ(node_of(apply_scalar(ScalarOp::pow, one, one)).op, ScalarOp::pow);
}

TEST(Folding, ADivisionByZeroIsLeftForTheKernelToReport) {
  ExprPool pool;
  const Expr seven = pool.constant_int(7, DType::i64), zero = pool.constant_int(0, DType::i64);
  for (ScalarOp op : {ScalarOp::floordiv, ScalarOp::truncdiv, ScalarOp::remainder, ScalarOp::fmod})
    EXPECT_EQ(node_of(apply_scalar(op, seven, zero)).op, op);
  expect_constant(pool.constant(1, DType::f32) / pool.constant(0, DType::f32), INFINITY);
}

TEST(Folding, IntegersWrapAtTheWidthOfTheNode) {
  ExprPool pool;
  expect_constant_int(pool.constant_int(127, DType::i8) + pool.constant_int(1, DType::i8), -128);
  expect_constant_int(pool.constant_int(200, DType::u8) + pool.constant_int(100, DType::u8), 44);
  expect_constant_int(-pool.constant_int(-128, DType::i8), -128);
  const int64_t smallest = std::numeric_limits<int32_t>::min();
  expect_constant_int(
      apply_scalar(ScalarOp::floordiv, pool.constant_int(smallest, DType::i32), pool.constant_int(-1, DType::i32)),
      smallest);
}

TEST(Folding, ComparisonsGiveBooleans) {
  ExprPool pool;
  const Expr one = pool.constant(1, DType::f32), nan = pool.constant(std::nan(""), DType::f32);
  const Expr less = apply_scalar(ScalarOp::lt, one, nan), different = apply_scalar(ScalarOp::ne, nan, nan);
  EXPECT_EQ(less.dtype(), DType::boolean);
  expect_constant_int(less, 0);
  expect_constant_int(different, 1);
}

TEST(Folding, AnInt64BecomesAnF32InOneRounding) {
  ExprPool pool;
  const int64_t value = (int64_t{1} << 60) + (int64_t{1} << 36) + 1;
  expect_constant(cast(pool.constant_int(value, DType::i64), DType::f32), static_cast<float>(value));
}

TEST(Folding, AFloatToIntegerCastStaysInTheKernel) {
  ExprPool pool;
  EXPECT_EQ(node_of(cast(pool.constant(1e30, DType::f32), DType::i32)).op, ScalarOp::cast);
}

TEST(Expr, ACastToItsOwnTypeIsTheExpressionItself) {
  ExprPool pool;
  const Expr x = pool.arg(0, DType::f32);
  EXPECT_EQ(cast(x, DType::f32).id(), x.id());
}

TEST(Expr, WhereHasTheTypeOfItsBranches) {
  ExprPool pool;
  const Expr x = pool.arg(0, DType::f32);
  const Expr chosen = where(apply_scalar(ScalarOp::gt, x, pool.constant(0, DType::f32)), x, -x);
  EXPECT_EQ(chosen.dtype(), DType::f32);
}

TEST(Expr, OperandsMustAgreeInTypeAndRecipe) {
  ExprPool pool, other;
  EXPECT_THROW(pool.arg(0, DType::f32) + pool.arg(1, DType::f64), InternalError);
  EXPECT_THROW(pool.arg(0, DType::f32) + other.arg(0, DType::f32), InternalError);
}

}  // namespace
}  // namespace tutti
