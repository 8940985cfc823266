#include "tutti/codegen/llvm/scalar_ops.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

Value* real(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
Value* integer(Value* like, int64_t value) { return llvm::ConstantInt::getSigned(like->getType(), value); }

llvm::Type* i64_like(llvm::IRBuilderBase& b, Value* v) { return like_lanes(b.getInt64Ty(), v); }

// floor(log2(v)) of a finite positive double, denormals included.
Value* exponent(llvm::IRBuilderBase& b, Value* v) {
  Value* denormal = b.CreateFCmpOLT(v, real(v, 0x1p-1022));
  Value* normal = b.CreateSelect(denormal, b.CreateFMul(v, real(v, 0x1p54)), v);
  Value* biased = b.CreateLShr(b.CreateBitCast(normal, i64_like(b, v)), 52);
  Value* shift = b.CreateSelect(denormal, integer(biased, 1023 + 54), integer(biased, 1023));
  return b.CreateSub(biased, shift);
}

// 2^e for a normal result.
Value* power_of_two(llvm::IRBuilderBase& b, Value* e) {
  Value* bits = b.CreateShl(b.CreateAdd(e, integer(e, 1023)), 52);
  return b.CreateBitCast(bits, like_lanes(b.getDoubleTy(), e));
}

// One step of long division on lanes with r >= y > 0: takes away a multiple of y 2^k, k chosen so that the quotient has
// at most 50 bits. The quotient may be one too large after rounding, the fused product is exact, and a negative rest is
// made good by adding the divisor once.
Value* reduce_once(llvm::IRBuilderBase& b, Value* r, Value* y, Value* exponent_y) {
  constexpr int64_t kQuotientBits = 50;
  Value* distance = b.CreateSub(exponent(b, r), exponent_y);
  Value* k = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateSub(distance, integer(distance, kQuotientBits)),
                                     integer(distance, 0));
  Value* half = b.CreateAShr(k, 1);  // 2^k itself may not be a double
  Value* divisor = b.CreateFMul(b.CreateFMul(y, power_of_two(b, half)), power_of_two(b, b.CreateSub(k, half)));
  Value* q = b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, b.CreateFDiv(r, divisor));
  Value* rest = b.CreateIntrinsic(llvm::Intrinsic::fma, {r->getType()}, {b.CreateFNeg(q), divisor, r});
  return b.CreateSelect(b.CreateFCmpOLT(rest, real(r, 0.0)), b.CreateFAdd(rest, divisor), rest);
}

Value* emit_fmod_f64(llvm::IRBuilderBase& b, Value* x, Value* y) {
  Value* infinity = llvm::ConstantFP::getInfinity(x->getType());
  Value* magnitude_x = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* magnitude_y = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, y);
  // Lanes without a finite quotient leave the loop at once: x inf or NaN, y zero or NaN give NaN; y inf gives x.
  Value* no_result = b.CreateOr(b.CreateFCmpUEQ(magnitude_x, infinity), b.CreateFCmpUEQ(magnitude_y, real(y, 0.0)));
  Value* start = b.CreateSelect(no_result, real(x, 0.0), magnitude_x);
  Value* divisor = b.CreateSelect(no_result, real(x, 1.0), magnitude_y);
  Value* exponent_y = exponent(b, divisor);

  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* loop = llvm::BasicBlock::Create(b.getContext(), "fmod", function);
  auto* body = llvm::BasicBlock::Create(b.getContext(), "fmod.step", function);
  auto* done = llvm::BasicBlock::Create(b.getContext(), "fmod.done", function);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* r = b.CreatePHI(x->getType(), 2);
  r->addIncoming(start, before);
  Value* unfinished = b.CreateFCmpOGE(r, divisor);
  b.CreateCondBr(any_lane(b, unfinished), body, done);
  b.SetInsertPoint(body);
  Value* active = b.CreateSelect(unfinished, r, divisor);  // finished lanes compute something harmless
  r->addIncoming(b.CreateSelect(unfinished, reduce_once(b, active, divisor, exponent_y), r), b.GetInsertBlock());
  b.CreateBr(loop);
  b.SetInsertPoint(done);
  Value* result = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, x);
  return b.CreateSelect(no_result, llvm::ConstantFP::getNaN(x->getType()), result);
}

}  // namespace

// The result is exact, hence the same through f64: a multiple of the smaller operand's last bit, below |y|.
Value* emit_fmod(llvm::IRBuilderBase& b, Value* x, Value* y) {
  if (x->getType()->getScalarType()->isDoubleTy()) return emit_fmod_f64(b, x, y);
  llvm::Type* f64 = like_lanes(b.getDoubleTy(), x);
  return b.CreateFPTrunc(emit_fmod_f64(b, b.CreateFPExt(x, f64), b.CreateFPExt(y, f64)), x->getType());
}

}  // namespace tutti::codegen
