#include "tutti/codegen/llvm/math.h"
#include "tutti/codegen/llvm/scalar_ops.h"
#include "tutti/core/error.h"

namespace tutti::codegen {

using llvm::Value;
using llvm::Intrinsic::ID;

namespace {

Value* constant(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

// The integer type of equal width, lane by lane.
llvm::Type* bits_type(llvm::IRBuilderBase& b, Value* v) {
  return like_lanes(b.getIntNTy(v->getType()->getScalarSizeInBits()), v);
}

Value* is_nan(llvm::IRBuilderBase& b, Value* v) { return b.CreateFCmpUNO(v, v); }

Value* intrinsic(llvm::IRBuilderBase& b, ID id, Value* v) { return b.CreateUnaryIntrinsic(id, v); }

// 0 of either sign and NaN give +0.
Value* sign(llvm::IRBuilderBase& b, Value* x) {
  Value* zero = constant(x, 0.0);
  Value* negative = b.CreateSelect(b.CreateFCmpOLT(x, zero), constant(x, -1.0), zero);
  return b.CreateSelect(b.CreateFCmpOGT(x, zero), constant(x, 1.0), negative);
}

// fmax and fmin: a NaN operand is ignored.
Value* extreme_number(llvm::IRBuilderBase& b, bool maximum, Value* x, Value* y) {
  Value* first = maximum ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);
  return b.CreateSelect(b.CreateOr(first, is_nan(b, y)), x, y);
}

Value* signs_differ(llvm::IRBuilderBase& b, Value* x, Value* y) {
  return b.CreateXor(b.CreateFCmpOLT(x, constant(x, 0.0)), b.CreateFCmpOLT(y, constant(y, 0.0)));
}

// spec: CPython's float_divmod; a zero result keeps the sign of fmod.
Value* remainder(llvm::IRBuilderBase& b, Value* x, Value* y) {
  Value* m = emit_fmod(b, x, y);
  Value* adjust = b.CreateAnd(b.CreateFCmpUNE(m, constant(m, 0.0)), signs_differ(b, m, y));
  return b.CreateSelect(adjust, b.CreateFAdd(m, y), m);
}

Value* floordiv(llvm::IRBuilderBase& b, Value* x, Value* y) {
  Value* zero = constant(x, 0.0);
  Value* quotient = b.CreateFDiv(x, y);
  Value* m = emit_fmod(b, x, y);
  Value* d = b.CreateFDiv(b.CreateFSub(x, m), y);
  Value* adjust = b.CreateAnd(b.CreateFCmpUNE(m, zero), signs_differ(b, m, y));
  d = b.CreateSelect(adjust, b.CreateFSub(d, constant(x, 1.0)), d);
  Value* f = intrinsic(b, llvm::Intrinsic::floor, d);
  Value* up = b.CreateFCmpOGT(b.CreateFSub(d, f), constant(x, 0.5));
  f = b.CreateSelect(up, b.CreateFAdd(f, constant(x, 1.0)), f);
  Value* signed_zero = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, quotient);
  f = b.CreateSelect(b.CreateFCmpOEQ(d, zero), signed_zero, f);
  return b.CreateSelect(b.CreateFCmpOEQ(y, zero), quotient, f);
}

Value* nextafter(llvm::IRBuilderBase& b, Value* x, Value* y) {
  llvm::Type* type = bits_type(b, x);
  Value* zero = constant(x, 0.0);
  Value* bits = b.CreateBitCast(x, type);
  // Away from zero is one more in the bits, for either sign.
  Value* away = b.CreateICmpEQ(b.CreateFCmpOLT(x, y), b.CreateFCmpOGT(x, zero));
  Value* step = b.CreateSelect(away, llvm::ConstantInt::get(type, 1), llvm::ConstantInt::getSigned(type, -1));
  Value* moved = b.CreateBitCast(b.CreateAdd(bits, step), x->getType());
  Value* smallest = b.CreateBitCast(llvm::ConstantInt::get(type, 1), x->getType());
  Value* from_zero = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, smallest, y);
  Value* result = b.CreateSelect(b.CreateFCmpOEQ(x, zero), from_zero, moved);
  result = b.CreateSelect(b.CreateFCmpOEQ(x, y), y, result);
  return b.CreateSelect(b.CreateFCmpUNO(x, y), b.CreateFAdd(x, y), result);
}

}  // namespace

Value* emit_float_extreme(llvm::IRBuilderBase& b, bool maximum, Value* x, Value* y) {
  Value* first = maximum ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);  // false leaves y, a NaN y too
  return b.CreateSelect(is_nan(b, x), x, b.CreateSelect(first, x, y));
}

Value* emit_ordered_extreme(llvm::IRBuilderBase& b, bool maximum, Value* x, Value* y) {
  // Equal numbers differ in bits only where they are zeros: -0 is the smaller.
  llvm::Type* type = bits_type(b, x);
  Value *x_bits = b.CreateBitCast(x, type), *y_bits = b.CreateBitCast(y, type);
  Value* equal = b.CreateBitCast(maximum ? b.CreateAnd(x_bits, y_bits) : b.CreateOr(x_bits, y_bits), x->getType());
  return b.CreateSelect(b.CreateFCmpOEQ(x, y), equal, emit_float_extreme(b, maximum, x, y));
}

Value* emit_float_op(const OpContext& c, ScalarOp op, llvm::ArrayRef<Value*> v) {
  llvm::IRBuilderBase& b = c.b;
  Value* x = v[0];
  switch (op) {
    case ScalarOp::neg:
      return b.CreateFNeg(x);
    case ScalarOp::abs:
      return intrinsic(b, llvm::Intrinsic::fabs, x);
    case ScalarOp::sign:
      return sign(b, x);
    case ScalarOp::signbit: {
      Value* bits = b.CreateBitCast(x, bits_type(b, x));
      return b.CreateICmpSLT(bits, llvm::Constant::getNullValue(bits->getType()));
    }
    case ScalarOp::ceil:
      return intrinsic(b, llvm::Intrinsic::ceil, x);
    case ScalarOp::floor:
      return intrinsic(b, llvm::Intrinsic::floor, x);
    case ScalarOp::trunc:
      return intrinsic(b, llvm::Intrinsic::trunc, x);
    case ScalarOp::round:
      return intrinsic(b, llvm::Intrinsic::roundeven, x);
    case ScalarOp::sqrt:
      return intrinsic(b, llvm::Intrinsic::sqrt, x);
    case ScalarOp::rsqrt:
      return b.CreateFDiv(constant(x, 1.0), intrinsic(b, llvm::Intrinsic::sqrt, x));
    case ScalarOp::reciprocal:
      return b.CreateFDiv(constant(x, 1.0), x);
    case ScalarOp::logical_not:
      return b.CreateFCmpOEQ(x, constant(x, 0.0));
    case ScalarOp::isnan:
      return is_nan(b, x);
    case ScalarOp::isinf:
      return b.CreateFCmpOEQ(intrinsic(b, llvm::Intrinsic::fabs, x), llvm::ConstantFP::getInfinity(x->getType()));
    case ScalarOp::add:
      return b.CreateFAdd(x, v[1]);
    case ScalarOp::sub:
      return b.CreateFSub(x, v[1]);
    case ScalarOp::mul:
      return b.CreateFMul(x, v[1]);
    case ScalarOp::truediv:
      return b.CreateFDiv(x, v[1]);
    case ScalarOp::truncdiv:
      return intrinsic(b, llvm::Intrinsic::trunc, b.CreateFDiv(x, v[1]));
    case ScalarOp::floordiv:
      return floordiv(b, x, v[1]);
    case ScalarOp::remainder:
      return remainder(b, x, v[1]);
    case ScalarOp::fmod:
      return emit_fmod(b, x, v[1]);
    case ScalarOp::maximum:
      return emit_ordered_extreme(b, true, x, v[1]);
    case ScalarOp::minimum:
      return emit_ordered_extreme(b, false, x, v[1]);
    case ScalarOp::fmax:
      return extreme_number(b, true, x, v[1]);
    case ScalarOp::fmin:
      return extreme_number(b, false, x, v[1]);
    case ScalarOp::copysign:
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, v[1]);
    case ScalarOp::nextafter:
      return nextafter(b, x, v[1]);
    case ScalarOp::fma:
      return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, v[1], v[2]});
    default:
      return emit_transcendental(b, op, v);
  }
}

}  // namespace tutti::codegen
