// Reduction of large angles by pi/2 after M. Payne and R. Hanek, "Radian reduction for trigonometric functions" (1983):
// only the bits of 2/pi that influence the result are multiplied with the mantissa, in integers.
#include <llvm/IR/Module.h>

#include "tutti/codegen/llvm/math_parts.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

// 64 zero bits, then the fraction bits of 2/pi.
constexpr uint64_t kTwoOverPiBits[] = {0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
                                       0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
                                       0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
                                       0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
                                       0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};
constexpr char kName[] = "tutti.reduce_big_angle";

llvm::GlobalVariable* table(llvm::Module& module) {
  llvm::Constant* words = llvm::ConstantDataArray::get(module.getContext(), llvm::ArrayRef<uint64_t>(kTwoOverPiBits));
  auto* global = new llvm::GlobalVariable(module, words->getType(), true, llvm::GlobalValue::PrivateLinkage, words,
                                          "tutti.two_over_pi");
  global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  global->setAlignment(llvm::Align(64));
  return global;
}

// The 192 bits of (2/pi) / 4 that follow the integer part of (2/pi) / 4 * 2^exponent, as three words, highest first.
struct Window {
  Value* word[3];
};
Window window(llvm::IRBuilderBase& b, llvm::Module& module, Value* exponent) {
  llvm::GlobalVariable* bits = table(module);
  // Lanes with a small angle come here too; their result is not used, but the position must be inside the table.
  Value* position = b.CreateAdd(exponent, b.getInt64(62));
  position = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, position, b.getInt64(0));
  Value* first = b.CreateLShr(position, 6);
  Value* loaded[4];
  for (int k = 0; k < 4; ++k) {
    Value* address = b.CreateInBoundsGEP(b.getInt64Ty(), bits, b.CreateAdd(first, b.getInt64(k)));
    loaded[k] = b.CreateAlignedLoad(b.getInt64Ty(), address, llvm::Align(8));
  }
  Window w;
  Value* shift = b.CreateAnd(position, 63);
  for (int k = 0; k < 3; ++k)
    w.word[k] = b.CreateIntrinsic(llvm::Intrinsic::fshl, {b.getInt64Ty()}, {loaded[k], loaded[k + 1], shift});
  return w;
}

// The fraction of mantissa * window, in 128 bits: x / (2 pi) modulo 1.
Value* turns(llvm::IRBuilderBase& b, Value* mantissa, const Window& w) {
  llvm::Type* wide = b.getInt128Ty();
  Value* m = b.CreateZExt(mantissa, wide);
  Value* low = b.CreateLShr(b.CreateMul(m, b.CreateZExt(w.word[2], wide)), 64);
  Value* middle = b.CreateMul(m, b.CreateZExt(w.word[1], wide));
  Value* high = b.CreateShl(b.CreateMul(m, b.CreateZExt(w.word[0], wide)), 64);
  return b.CreateAdd(b.CreateAdd(high, middle), low);
}

// 53 bits of `magnitude`, whose highest bit is set, from bit `from` up, times 2^(from - 126 - leading).
Value* piece(llvm::IRBuilderBase& b, Value* magnitude, int from, Value* leading) {
  Value* bits = b.CreateTrunc(b.CreateLShr(magnitude, from), b.getInt64Ty());
  bits = b.CreateAnd(bits, b.getInt64((int64_t{1} << 53) - 1));
  Value* scale = b.CreateShl(b.CreateSub(b.getInt64(1023 + from - 126), leading), 52);
  return b.CreateFMul(b.CreateSIToFP(bits, b.getDoubleTy()), b.CreateBitCast(scale, b.getDoubleTy()));
}

// double x -> {n mod 4, high, low} with x = n pi/2 + high + low.
void emit_body(llvm::IRBuilderBase& b, llvm::Function& function) {
  Value* pattern = b.CreateBitCast(function.getArg(0), b.getInt64Ty());
  Value* biased = b.CreateAnd(b.CreateLShr(pattern, 52), b.getInt64(0x7ff));
  const int64_t hidden = int64_t{1} << 52;
  Value* mantissa = b.CreateOr(b.CreateAnd(pattern, b.getInt64(hidden - 1)), b.getInt64(hidden));
  // |x| = mantissa 2^(biased - 1075)
  Value* t = turns(b, mantissa, window(b, *function.getParent(), b.CreateSub(biased, b.getInt64(1075))));
  Value* negative_x = b.CreateICmpSLT(pattern, b.getInt64(0));
  t = b.CreateSelect(negative_x, b.CreateNeg(t), t);
  // The nearest quadrant in the two highest bits; the signed rest counts 2^-126 of a quadrant.
  llvm::Type* wide = b.getInt128Ty();
  Value* half = b.CreateShl(llvm::ConstantInt::get(wide, 1), 125);
  Value* quadrant = b.CreateLShr(b.CreateAdd(t, half), 126);
  Value* rest = b.CreateSub(t, b.CreateShl(quadrant, 126));
  Value* negative = b.CreateICmpSLT(rest, llvm::ConstantInt::get(wide, 0));
  Value* magnitude = b.CreateSelect(negative, b.CreateNeg(rest), rest);
  Value* leading = b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, magnitude, b.getFalse());
  magnitude = b.CreateShl(magnitude, b.CreateAnd(leading, llvm::ConstantInt::get(wide, 127)));
  leading = b.CreateTrunc(leading, b.getInt64Ty());
  const Fp first{&b, piece(b, magnitude, 75, leading)}, second{&b, piece(b, magnitude, 22, leading)};
  constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;
  const Fp high = first * kHalfPi;
  const Fp low = fma(first, kHalfPi, -high) + fma(first, kHalfPiLow, second * kHalfPi);
  const Mask minus{&b, negative};
  Value* result = llvm::PoisonValue::get(function.getReturnType());
  result = b.CreateInsertValue(result, b.CreateSIToFP(b.CreateTrunc(quadrant, b.getInt64Ty()), b.getDoubleTy()), 0);
  result = b.CreateInsertValue(result, select(minus, -high, high).value, 1);
  result = b.CreateInsertValue(result, select(minus, -low, low).value, 2);
  b.CreateRet(result);
}

llvm::Function* reduction(llvm::IRBuilderBase& b) {
  llvm::Function* caller = b.GetInsertBlock()->getParent();
  llvm::Module& module = *caller->getParent();
  if (llvm::Function* made = module.getFunction(kName)) return made;
  llvm::Type* f64 = b.getDoubleTy();
  auto* type = llvm::FunctionType::get(llvm::StructType::get(f64, f64, f64), {f64}, false);
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, kName, module);
  function->addFnAttr(llvm::Attribute::NoInline);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  for (const char* attribute : {"target-cpu", "target-features"})
    if (caller->hasFnAttribute(attribute)) function->addFnAttr(caller->getFnAttribute(attribute));
  llvm::IRBuilder<> body(llvm::BasicBlock::Create(module.getContext(), "", function));
  emit_body(body, *function);
  return function;
}

}  // namespace

// One call per lane: angles this large are rare, and the caller branches around this when there are none.
AngleReduction reduce_big_angle(Fp x) {
  llvm::IRBuilderBase& b = *x.b;
  llvm::Function* function = reduction(b);
  const unsigned lanes = lanes_of(x.value);
  Value* result[3];
  for (Value*& r : result) r = llvm::PoisonValue::get(x.value->getType());
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Value* one = b.CreateCall(function, {lanes == 1 ? x.value : b.CreateExtractElement(x.value, lane)});
    for (unsigned k = 0; k < 3; ++k) {
      Value* part = b.CreateExtractValue(one, k);
      result[k] = lanes == 1 ? part : b.CreateInsertElement(result[k], part, lane);
    }
  }
  return {{&b, result[0]}, {{&b, result[1]}, {&b, result[2]}}};
}

}  // namespace tutti::codegen
