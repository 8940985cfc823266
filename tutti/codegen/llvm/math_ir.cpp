#include "tutti/codegen/llvm/math_ir.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "tutti/codegen/llvm/machine_code.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

namespace {

Value* in(const Term& t, Fp like) {
  return t.lanes.value ? t.lanes.value : llvm::ConstantFP::get(like.value->getType(), t.constant);
}

Value* in(const IntTerm& t, Int like) {
  return t.lanes.value ? t.lanes.value : llvm::ConstantInt::getSigned(like.value->getType(), t.constant);
}

// The operand that says which type the others take.
Fp typed(const Term& a, const Term& b) { return a.lanes.value ? a.lanes : b.lanes; }
Int typed(const IntTerm& a, const IntTerm& b) { return a.lanes.value ? a.lanes : b.lanes; }

Fp unary(Intrinsic::ID id, Fp x) { return {x.b, x.b->CreateUnaryIntrinsic(id, x.value)}; }

}  // namespace

bool is_f32(Fp x) { return x.value->getType()->getScalarType()->isFloatTy(); }

Fp number(Fp like, double c) { return {like.b, llvm::ConstantFP::get(like.value->getType(), c)}; }

Fp operator+(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFAdd(in(a, t), in(b, t))};
}
Fp operator-(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFSub(in(a, t), in(b, t))};
}
Fp operator*(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFMul(in(a, t), in(b, t))};
}
Fp operator/(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFDiv(in(a, t), in(b, t))};
}
Fp operator-(Fp a) { return {a.b, a.b->CreateFNeg(a.value)}; }

Fp fma(Term a, Term b, Term c) {
  const Fp t = a.lanes.value ? a.lanes : typed(b, c);
  return {t.b, t.b->CreateIntrinsic(Intrinsic::fma, {t.value->getType()}, {in(a, t), in(b, t), in(c, t)})};
}

Fp sqrt(Fp x) { return unary(Intrinsic::sqrt, x); }
Fp abs(Fp x) { return unary(Intrinsic::fabs, x); }
Fp floor(Fp x) { return unary(Intrinsic::floor, x); }
Fp round_even(Fp x) { return unary(Intrinsic::roundeven, x); }
Fp copysign(Term magnitude, Term sign) {
  const Fp t = typed(magnitude, sign);
  return {t.b, t.b->CreateBinaryIntrinsic(Intrinsic::copysign, in(magnitude, t), in(sign, t))};
}

Mask operator<(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFCmpOLT(in(a, t), in(b, t))};
}
Mask operator<=(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFCmpOLE(in(a, t), in(b, t))};
}
Mask equal(Term a, Term b) {
  const Fp t = typed(a, b);
  return {t.b, t.b->CreateFCmpOEQ(in(a, t), in(b, t))};
}
Mask is_nan(Fp x) { return {x.b, x.b->CreateFCmpUNO(x.value, x.value)}; }
Mask operator&(Mask a, Mask b) { return {a.b, a.b->CreateAnd(a.value, b.value)}; }
Mask operator|(Mask a, Mask b) { return {a.b, a.b->CreateOr(a.value, b.value)}; }
Mask operator^(Mask a, Mask b) { return {a.b, a.b->CreateXor(a.value, b.value)}; }
Mask operator!(Mask a) { return {a.b, a.b->CreateNot(a.value)}; }

Fp select(Mask m, Term yes, Term no) {
  const Fp t = typed(yes, no);
  return {m.b, m.b->CreateSelect(m.value, in(yes, t), in(no, t))};
}

Int bits(Fp x) {
  llvm::Type* element = x.b->getIntNTy(x.value->getType()->getScalarSizeInBits());
  return {x.b, x.b->CreateBitCast(x.value, like_lanes(element, x.value))};
}
Fp from_bits(Int pattern) {
  const bool single = pattern.value->getType()->getScalarSizeInBits() == 32;
  llvm::Type* element = single ? pattern.b->getFloatTy() : pattern.b->getDoubleTy();
  return {pattern.b, pattern.b->CreateBitCast(pattern.value, like_lanes(element, pattern.value))};
}

Int operator+(IntTerm a, IntTerm b) {
  const Int t = typed(a, b);
  return {t.b, t.b->CreateAdd(in(a, t), in(b, t))};
}
Int operator-(IntTerm a, IntTerm b) {
  const Int t = typed(a, b);
  return {t.b, t.b->CreateSub(in(a, t), in(b, t))};
}
Int operator&(IntTerm a, IntTerm b) {
  const Int t = typed(a, b);
  return {t.b, t.b->CreateAnd(in(a, t), in(b, t))};
}
Int operator|(IntTerm a, IntTerm b) {
  const Int t = typed(a, b);
  return {t.b, t.b->CreateOr(in(a, t), in(b, t))};
}
Int operator^(IntTerm a, IntTerm b) {
  const Int t = typed(a, b);
  return {t.b, t.b->CreateXor(in(a, t), in(b, t))};
}
Int operator<<(Int a, int64_t count) { return {a.b, a.b->CreateShl(a.value, count)}; }
Int operator>>(Int a, int64_t count) { return {a.b, a.b->CreateLShr(a.value, count)}; }
Mask equal(IntTerm a, IntTerm b) {
  const Int t = typed(a, b);
  return {t.b, t.b->CreateICmpEQ(in(a, t), in(b, t))};
}

Fp widen(Fp x) { return {x.b, x.b->CreateFPExt(x.value, like_lanes(x.b->getDoubleTy(), x.value))}; }
Fp narrow(Fp x) { return {x.b, x.b->CreateFPTrunc(x.value, like_lanes(x.b->getFloatTy(), x.value))}; }

bool has_times_power_of_two(Fp x) {
  return is_for_wide_registers(*x.b->GetInsertBlock()->getParent()) && lanes_of(x.value) == (is_f32(x) ? 16 : 8);
}

Fp times_power_of_two(Fp x, Fp n) {
  const bool f32 = is_f32(x);
  llvm::IRBuilderBase& b = *x.b;
  Value* all_lanes = f32 ? b.getInt16(0xffff) : b.getInt8(0xff);
  Value* current_rounding = b.getInt32(4);
  return {x.b,
          b.CreateIntrinsic(f32 ? Intrinsic::x86_avx512_mask_scalef_ps_512 : Intrinsic::x86_avx512_mask_scalef_pd_512,
                            {}, {x.value, n.value, x.value, all_lanes, current_rounding})};
}

Fp polynomial(Fp x, std::span<const double> c) {
  Fp sum = number(x, c.back());
  for (size_t k = c.size() - 1; k-- > 0;) sum = fma(sum, x, c[k]);
  return sum;
}

Fp polynomial(Fp x, Mask m, std::span<const double> yes, std::span<const double> no) {
  const auto coefficient = [&](size_t k) { return select(m, number(x, yes[k]), no[k]); };
  Fp sum = coefficient(yes.size() - 1);
  for (size_t k = yes.size() - 1; k-- > 0;) sum = fma(sum, x, coefficient(k));
  return sum;
}

std::vector<Fp> replace_rare(Mask m, std::vector<Fp> values, const std::function<std::vector<Fp>()>& rare) {
  llvm::IRBuilderBase& b = *m.b;
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* replace = llvm::BasicBlock::Create(b.getContext(), "rare", before->getParent());
  auto* join = llvm::BasicBlock::Create(b.getContext(), "rare.done", before->getParent());
  b.CreateCondBr(lanes_of(m.value) == 1 ? m.value : b.CreateOrReduce(m.value), replace, join);
  b.SetInsertPoint(replace);
  std::vector<Fp> replaced = rare();
  for (size_t k = 0; k < values.size(); ++k) replaced[k] = select(m, replaced[k], values[k]);
  llvm::BasicBlock* replace_end = b.GetInsertBlock();
  b.CreateBr(join);
  b.SetInsertPoint(join);
  for (size_t k = 0; k < values.size(); ++k) {
    llvm::PHINode* phi = b.CreatePHI(values[k].value->getType(), 2);
    phi->addIncoming(values[k].value, before);
    phi->addIncoming(replaced[k].value, replace_end);
    values[k].value = phi;
  }
  return values;
}

const FloatLayout& layout(Fp x) {
  static constexpr FloatLayout kF32{23, 127, 0x1p-126, 0x1.8p23};
  static constexpr FloatLayout kF64{52, 1023, 0x1p-1022, 0x1.8p52};
  return is_f32(x) ? kF32 : kF64;
}

}  // namespace tutti::codegen
