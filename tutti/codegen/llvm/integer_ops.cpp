#include "tutti/codegen/kernel.h"
#include "tutti/codegen/llvm/scalar_ops.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

Value* like(Value* other, int64_t value) { return llvm::ConstantInt::getSigned(other->getType(), value); }
Value* zero(Value* like) { return llvm::Constant::getNullValue(like->getType()); }

// Sets the error slot where a lane that counts divides by zero, and returns a divisor without zeros.
Value* checked_divisor(const OpContext& c, Value* divisor) {
  llvm::IRBuilderBase& b = c.b;
  Value* is_zero = b.CreateICmpEQ(divisor, zero(divisor));
  Value* counted = c.mask ? b.CreateAnd(is_zero, c.mask) : is_zero;
  raise_flag(b, c.error, counted, kDividedByZero);
  return b.CreateSelect(is_zero, like(divisor, 1), divisor);
}

// Quotient toward zero for divisors other than 0 and -1. x86 divides integers one by one, floats in vectors: f64 holds
// the quotient of 32-bit integers, f32 that of 16-bit ones, closely enough for truncation to be exact (the error is
// below 1/|divisor|).
Value* divide(llvm::IRBuilderBase& b, bool is_signed, Value* x, Value* y) {
  const unsigned width = x->getType()->getScalarSizeInBits();
  if (width == 64 || lanes_of(x) == 1) return is_signed ? b.CreateSDiv(x, y) : b.CreateUDiv(x, y);
  llvm::Type* type = like_lanes(width == 32 ? b.getDoubleTy() : b.getFloatTy(), x);
  llvm::Type* i32 = like_lanes(b.getInt32Ty(), x);
  const auto to_float = [&](Value* v) {
    return b.CreateSIToFP(is_signed ? b.CreateSExt(v, i32) : b.CreateZExt(v, i32), type);
  };
  return b.CreateTrunc(b.CreateFPToSI(b.CreateFDiv(to_float(x), to_float(y)), i32), x->getType());
}

struct Division {
  Value* quotient;  // toward zero
  Value* rest;      // sign of the dividend
  Value* adjust;    // the quotient toward minus infinity is one less; null when unsigned
  Value* divisor;
};

// The smallest integer divided by -1 wraps to itself: -1 is divided as 1 and the quotient negated.
Division divide_all(const OpContext& c, DType dtype, Value* x, Value* y) {
  llvm::IRBuilderBase& b = c.b;
  const bool has_sign = is_signed(dtype);
  Value* divisor = checked_divisor(c, y);
  if (!has_sign) {
    Value* q = divide(b, false, x, divisor);
    return {q, b.CreateSub(x, b.CreateMul(q, divisor)), nullptr, divisor};
  }
  Value* minus_one = b.CreateICmpEQ(divisor, like(divisor, -1));
  Value* q = divide(b, true, x, b.CreateSelect(minus_one, like(divisor, 1), divisor));
  q = b.CreateSelect(minus_one, b.CreateNeg(q), q);
  Value* rest = b.CreateSub(x, b.CreateMul(q, divisor));
  Value* differ = b.CreateICmpSLT(b.CreateXor(rest, divisor), zero(rest));
  return {q, rest, b.CreateAnd(b.CreateICmpNE(rest, zero(rest)), differ), divisor};
}

Value* floordiv(const OpContext& c, DType dtype, Value* x, Value* y) {
  const Division d = divide_all(c, dtype, x, y);
  return d.adjust ? c.b.CreateSub(d.quotient, c.b.CreateZExt(d.adjust, x->getType())) : d.quotient;
}

Value* remainder(const OpContext& c, DType dtype, Value* x, Value* y) {
  const Division d = divide_all(c, dtype, x, y);
  return d.adjust ? c.b.CreateAdd(d.rest, c.b.CreateSelect(d.adjust, d.divisor, zero(x))) : d.rest;
}

// Repeated squaring, modulo 2^width, for as many rounds as the largest exponent has bits.
Value* pow_nonnegative(llvm::IRBuilderBase& b, Value* x, Value* n) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* loop = llvm::BasicBlock::Create(b.getContext(), "pow", function);
  auto* body = llvm::BasicBlock::Create(b.getContext(), "pow.step", function);
  auto* done = llvm::BasicBlock::Create(b.getContext(), "pow.done", function);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* result = b.CreatePHI(x->getType(), 2);
  llvm::PHINode* base = b.CreatePHI(x->getType(), 2);
  llvm::PHINode* rest = b.CreatePHI(x->getType(), 2);
  result->addIncoming(like(x, 1), before);
  base->addIncoming(x, before);
  rest->addIncoming(n, before);
  b.CreateCondBr(any_lane(b, b.CreateICmpNE(rest, zero(rest))), body, done);
  b.SetInsertPoint(body);
  Value* odd = b.CreateICmpNE(b.CreateAnd(rest, like(rest, 1)), zero(rest));
  result->addIncoming(b.CreateSelect(odd, b.CreateMul(result, base), result), body);
  base->addIncoming(b.CreateMul(base, base), body);
  rest->addIncoming(b.CreateLShr(rest, like(rest, 1)), body);
  b.CreateBr(loop);
  b.SetInsertPoint(done);
  return result;
}

// core/number.h pow_i64: a negative exponent gives 1 for base 1, +-1 for base -1, 0 otherwise.
Value* pow(llvm::IRBuilderBase& b, DType dtype, Value* x, Value* n) {
  if (!is_signed(dtype)) return pow_nonnegative(b, x, n);
  Value* negative = b.CreateICmpSLT(n, zero(n));
  Value* power = pow_nonnegative(b, x, b.CreateSelect(negative, b.CreateAnd(n, like(n, 1)), n));
  // With the exponent's parity as exponent the bases 1 and -1 come out right; the others are 0.
  Value* unit = b.CreateOr(b.CreateICmpEQ(x, like(x, 1)), b.CreateICmpEQ(x, like(x, -1)));
  return b.CreateSelect(b.CreateAnd(negative, b.CreateNot(unit)), zero(x), power);
}

// Counts outside [0, width) shift everything out.
Value* shift(llvm::IRBuilderBase& b, bool left, bool is_signed, Value* x, Value* n) {
  const unsigned width = x->getType()->getScalarSizeInBits();
  Value* in_range = b.CreateICmpULT(n, like(n, width));
  Value* count = b.CreateSelect(in_range, n, like(n, width - 1));
  if (!left && is_signed) return b.CreateAShr(x, count);
  return b.CreateSelect(in_range, left ? b.CreateShl(x, count) : b.CreateLShr(x, count), zero(x));
}

Value* extreme(llvm::IRBuilderBase& b, bool maximum, bool is_signed, Value* x, Value* y) {
  const auto id = maximum ? (is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax)
                          : (is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
  return b.CreateBinaryIntrinsic(id, x, y);
}

Value* sign(llvm::IRBuilderBase& b, bool is_signed, Value* x) {
  Value* positive = b.CreateZExt(is_signed ? b.CreateICmpSGT(x, zero(x)) : b.CreateICmpNE(x, zero(x)), x->getType());
  return is_signed ? b.CreateOr(positive, b.CreateSExt(b.CreateICmpSLT(x, zero(x)), x->getType())) : positive;
}

Value* absolute(llvm::IRBuilderBase& b, Value* x) {
  return b.CreateSelect(b.CreateICmpSLT(x, zero(x)), b.CreateNeg(x), x);  // the smallest integer wraps to itself
}

}  // namespace

Value* emit_integer_op(const OpContext& c, ScalarOp op, DType dtype, llvm::ArrayRef<Value*> v) {
  llvm::IRBuilderBase& b = c.b;
  const bool has_sign = is_signed(dtype);
  Value* x = v[0];
  llvm::Type* truth = like_lanes(b.getInt1Ty(), x);
  switch (op) {
    case ScalarOp::neg:
      return b.CreateNeg(x);
    case ScalarOp::abs:
      return has_sign ? absolute(b, x) : x;
    case ScalarOp::sign:
      return sign(b, has_sign, x);
    case ScalarOp::signbit:
      return has_sign ? b.CreateICmpSLT(x, zero(x)) : llvm::Constant::getNullValue(truth);
    case ScalarOp::ceil:
    case ScalarOp::floor:
    case ScalarOp::trunc:
    case ScalarOp::round:
      return x;
    case ScalarOp::logical_not:
      return b.CreateICmpEQ(x, zero(x));
    case ScalarOp::bitwise_not:
      return b.CreateNot(x);
    case ScalarOp::isnan:
    case ScalarOp::isinf:
      return llvm::Constant::getNullValue(truth);
    case ScalarOp::add:
      return b.CreateAdd(x, v[1]);
    case ScalarOp::sub:
      return b.CreateSub(x, v[1]);
    case ScalarOp::mul:
      return b.CreateMul(x, v[1]);
    case ScalarOp::floordiv:
      return floordiv(c, dtype, x, v[1]);
    case ScalarOp::truncdiv:
      return divide_all(c, dtype, x, v[1]).quotient;
    case ScalarOp::remainder:
      return remainder(c, dtype, x, v[1]);
    case ScalarOp::fmod:
      return divide_all(c, dtype, x, v[1]).rest;
    case ScalarOp::pow:
      return pow(b, dtype, x, v[1]);
    case ScalarOp::maximum:
    case ScalarOp::fmax:
      return extreme(b, true, has_sign, x, v[1]);
    case ScalarOp::minimum:
    case ScalarOp::fmin:
      return extreme(b, false, has_sign, x, v[1]);
    case ScalarOp::bit_and:
      return b.CreateAnd(x, v[1]);
    case ScalarOp::bit_or:
      return b.CreateOr(x, v[1]);
    case ScalarOp::bit_xor:
      return b.CreateXor(x, v[1]);
    case ScalarOp::shl:
      return shift(b, true, has_sign, x, v[1]);
    case ScalarOp::shr:
      return shift(b, false, has_sign, x, v[1]);
    case ScalarOp::fma:
      return b.CreateAdd(b.CreateMul(x, v[1]), v[2]);
    default:
      no_such_op(op, dtype);
  }
}

}  // namespace tutti::codegen
