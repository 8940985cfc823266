#include "tutti/codegen/llvm/convert.h"

#include <limits>

#include "tutti/core/error.h"

namespace tutti::codegen {

using llvm::Value;

llvm::Type* register_type(llvm::LLVMContext& context, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return llvm::Type::getDoubleTy(context);
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
      return llvm::Type::getFloatTy(context);
    case DType::boolean:
      return llvm::Type::getInt1Ty(context);
    default:
      return llvm::Type::getIntNTy(context, static_cast<unsigned>(itemsize(dtype)) * 8);
  }
}

llvm::Type* storage_type(llvm::LLVMContext& context, DType dtype) {
  if (dtype == DType::f64 || dtype == DType::f32) return register_type(context, dtype);
  return llvm::Type::getIntNTy(context, static_cast<unsigned>(itemsize(dtype)) * 8);
}

namespace {

llvm::Type* i32_like(llvm::IRBuilderBase& b, Value* v) { return like_lanes(b.getInt32Ty(), v); }
llvm::Type* f32_like(llvm::IRBuilderBase& b, Value* v) { return like_lanes(b.getFloatTy(), v); }
Value* u32(llvm::IRBuilderBase& b, Value* like, uint32_t value) {
  return llvm::ConstantInt::get(i32_like(b, like), value);
}

Value* float_bits(llvm::IRBuilderBase& b, Value* v) { return b.CreateBitCast(v, i32_like(b, v)); }
Value* is_nan(llvm::IRBuilderBase& b, Value* v) { return b.CreateFCmpUNO(v, v); }

// The f32 sign bit moved down to bit `position`.
Value* sign_at(llvm::IRBuilderBase& b, Value* bits, unsigned position) {
  return b.CreateAnd(b.CreateLShr(bits, 31 - position), u32(b, bits, 1u << position));
}

Value* widen_f8e4m3fn(llvm::IRBuilderBase& b, Value* stored) {
  Value* bits = b.CreateZExt(stored, i32_like(b, stored));
  Value* magnitude = b.CreateAnd(bits, u32(b, bits, 0x7f));
  // With the exponent in the low bits of f32's, the value is 2^-120 times too small; the product is exact, denormals
  // too.
  Value* scaled = b.CreateBitCast(b.CreateShl(magnitude, 20), f32_like(b, bits));
  Value* exact = b.CreateFMul(scaled, llvm::ConstantFP::get(scaled->getType(), 0x1p120));
  Value* sign = b.CreateShl(b.CreateAnd(bits, u32(b, bits, 0x80)), 24);
  Value* is_nan8 = b.CreateICmpEQ(magnitude, u32(b, bits, 0x7f));
  Value* signed_bits = b.CreateOr(float_bits(b, exact), sign);
  return b.CreateBitCast(b.CreateSelect(is_nan8, u32(b, bits, 0x7fc00000), signed_bits), f32_like(b, bits));
}

Value* widen_half(llvm::IRBuilderBase& b, Value* stored) {
  Value* half = b.CreateBitCast(stored, like_lanes(b.getHalfTy(), stored));
  return b.CreateFPExt(half, f32_like(b, stored));
}

Value* round_to_bf16(llvm::IRBuilderBase& b, Value* v) {
  Value* bits = float_bits(b, v);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), u32(b, bits, 1));
  Value* rounded = b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, u32(b, bits, 0x7fff)), odd), 16);
  Value* quiet = b.CreateOr(b.CreateLShr(bits, 16), u32(b, bits, 0x40));
  return b.CreateTrunc(b.CreateSelect(is_nan(b, v), quiet, rounded), like_lanes(b.getInt16Ty(), v));
}

Value* round_to_f16(llvm::IRBuilderBase& b, Value* v) {
  // The hardware conversion rounds to nearest even and keeps denormals; only the payload of a NaN is made canonical.
  Value* half = b.CreateBitCast(b.CreateFPTrunc(v, like_lanes(b.getHalfTy(), v)), like_lanes(b.getInt16Ty(), v));
  Value* sign = b.CreateTrunc(sign_at(b, float_bits(b, v), 15), half->getType());
  Value* nan = b.CreateOr(sign, llvm::ConstantInt::get(half->getType(), 0x7e00));
  return b.CreateSelect(is_nan(b, v), nan, half);
}

struct SmallFormat {
  unsigned mantissa_bits;
  int bias;
  double smallest_normal;
  double denormal_step;  // distance between denormals
};

// Exponent and mantissa of |v| in a format of one byte, ties to even; overflow runs past the largest finite code.
Value* round_magnitude(llvm::IRBuilderBase& b, Value* v, const SmallFormat& format) {
  Value* magnitude_bits = b.CreateAnd(float_bits(b, v), u32(b, v, 0x7fffffff));
  Value* magnitude = b.CreateBitCast(magnitude_bits, f32_like(b, v));
  const unsigned drop = 23 - format.mantissa_bits;
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude_bits, drop), u32(b, v, 1));
  Value* nudged = b.CreateAdd(b.CreateAdd(magnitude_bits, u32(b, v, (1u << (drop - 1)) - 1)), odd);
  Value* normal = b.CreateSub(b.CreateLShr(nudged, drop),
                              u32(b, v, static_cast<uint32_t>(127 - format.bias) << format.mantissa_bits));
  // Adding 2^23 steps makes the sum's last bit one step: the addition itself rounds to nearest even.
  llvm::Constant* magic = llvm::ConstantFP::get(f32_like(b, v), format.denormal_step * 0x1p23);
  Value* sum = b.CreateFAdd(magnitude, magic);
  Value* denormal = b.CreateSub(float_bits(b, sum), b.CreateBitCast(magic, i32_like(b, v)));
  Value* small = b.CreateFCmpOLT(magnitude, llvm::ConstantFP::get(f32_like(b, v), format.smallest_normal));
  return b.CreateSelect(small, denormal, normal);
}

Value* round_to_f8e4m3fn(llvm::IRBuilderBase& b, Value* v) {
  Value* packed = round_magnitude(b, v, {3, 7, 0x1p-6, 0x1p-9});
  // Halfway between 448 and the missing 480 lies 464, whose tie goes to 448; beyond it there is only NaN.
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
  Value* none = b.CreateFCmpUGT(magnitude, llvm::ConstantFP::get(v->getType(), 464.0));
  packed = b.CreateSelect(none, u32(b, v, 0x7f), packed);
  return b.CreateTrunc(b.CreateOr(packed, sign_at(b, float_bits(b, v), 7)), like_lanes(b.getInt8Ty(), v));
}

Value* round_to_f8e5m2(llvm::IRBuilderBase& b, Value* v) {
  Value* packed = round_magnitude(b, v, {2, 15, 0x1p-14, 0x1p-16});
  packed = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, packed, u32(b, v, 0x7c));
  packed = b.CreateSelect(is_nan(b, v), u32(b, v, 0x7e), packed);
  return b.CreateTrunc(b.CreateOr(packed, sign_at(b, float_bits(b, v), 7)), like_lanes(b.getInt8Ty(), v));
}

Value* float_to_int64(llvm::IRBuilderBase& b, Value* v) {
  llvm::Type* type = v->getType();
  llvm::Type* i64 = like_lanes(b.getInt64Ty(), v);
  // Outside the range fptosi is undefined, so such lanes convert 0 instead.
  Value* fits = b.CreateAnd(b.CreateFCmpOGE(v, llvm::ConstantFP::get(type, -0x1p63)),
                            b.CreateFCmpOLT(v, llvm::ConstantFP::get(type, 0x1p63)));
  Value* safe = b.CreateSelect(fits, v, llvm::ConstantFP::get(type, 0.0));
  return b.CreateSelect(fits, b.CreateFPToSI(safe, i64),
                        llvm::ConstantInt::getSigned(i64, std::numeric_limits<int64_t>::min()));
}

}  // namespace

Value* widen_storage(llvm::IRBuilderBase& b, Value* stored, DType storage) {
  switch (storage) {
    case DType::bf16:
      return b.CreateBitCast(b.CreateShl(b.CreateZExt(stored, i32_like(b, stored)), 16), f32_like(b, stored));
    case DType::f16:
      return widen_half(b, stored);
    case DType::f8e4m3fn:
      return widen_f8e4m3fn(b, stored);
    case DType::f8e5m2:  // the upper half of an f16
      return widen_half(b, b.CreateShl(b.CreateZExt(stored, like_lanes(b.getInt16Ty(), stored)), 8));
    case DType::boolean:
      return b.CreateICmpNE(stored, llvm::Constant::getNullValue(stored->getType()));
    default:
      return stored;
  }
}

Value* round_to_storage(llvm::IRBuilderBase& b, Value* value, DType storage) {
  switch (storage) {
    case DType::bf16:
      return round_to_bf16(b, value);
    case DType::f16:
      return round_to_f16(b, value);
    case DType::f8e4m3fn:
      return round_to_f8e4m3fn(b, value);
    case DType::f8e5m2:
      return round_to_f8e5m2(b, value);
    case DType::boolean:
      return b.CreateZExt(value, like_lanes(b.getInt8Ty(), value));
    default:
      return value;
  }
}

Value* emit_cast(llvm::IRBuilderBase& b, Value* value, DType from, DType to) {
  if (from == to) return value;
  llvm::Type* type = like_lanes(register_type(b.getContext(), to), value);
  if (is_floating(from)) {
    if (is_floating(to)) return b.CreateFPCast(value, type);
    if (to == DType::boolean) return b.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()));
    return b.CreateTrunc(float_to_int64(b, value), type);
  }
  if (is_floating(to)) return is_signed(from) ? b.CreateSIToFP(value, type) : b.CreateUIToFP(value, type);
  if (to == DType::boolean) return b.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  return b.CreateIntCast(value, type, is_signed(from));
}

Value* emit_bitcast(llvm::IRBuilderBase& b, Value* value, DType from, DType to) {
  TUTTI_CHECK(itemsize(from) == itemsize(to), "bitcast of {} to {}: sizes differ", name_of(from), name_of(to));
  if (from == to) return value;
  if (from == DType::boolean) return b.CreateZExt(value, like_lanes(b.getInt8Ty(), value));
  if (to == DType::boolean) return b.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  return b.CreateBitCast(value, like_lanes(register_type(b.getContext(), to), value));
}

}  // namespace tutti::codegen
