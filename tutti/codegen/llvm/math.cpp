#include "tutti/codegen/llvm/math.h"

#include <llvm/IR/IRBuilder.h>

#include "tutti/codegen/llvm/math_parts.h"
#include "tutti/core/error.h"

namespace tutti::codegen {

namespace {

struct UnaryRow {
  ScalarOp op;
  Fp (*emit)(Fp);
};
constexpr UnaryRow kUnary[] = {
    {ScalarOp::exp, exp_of},       {ScalarOp::exp2, exp2_of},       {ScalarOp::expm1, expm1_of},
    {ScalarOp::log, log_of},       {ScalarOp::log2, log2_of},       {ScalarOp::log10, log10_of},
    {ScalarOp::log1p, log1p_of},   {ScalarOp::sin, sin_of},         {ScalarOp::cos, cos_of},
    {ScalarOp::tan, tan_of},       {ScalarOp::asin, asin_of},       {ScalarOp::acos, acos_of},
    {ScalarOp::atan, atan_of},     {ScalarOp::sinh, sinh_of},       {ScalarOp::cosh, cosh_of},
    {ScalarOp::tanh, tanh_of},     {ScalarOp::asinh, asinh_of},     {ScalarOp::acosh, acosh_of},
    {ScalarOp::atanh, atanh_of},   {ScalarOp::erf, erf_of},         {ScalarOp::erfcx, erfcx_of},
    {ScalarOp::erfinv, erfinv_of}, {ScalarOp::sigmoid, sigmoid_of}, {ScalarOp::lgamma, lgamma_of},
};

struct BinaryRow {
  ScalarOp op;
  Fp (*emit)(Fp, Fp);
};
constexpr BinaryRow kBinary[] = {{ScalarOp::pow, pow_of}, {ScalarOp::atan2, atan2_of}};

}  // namespace

llvm::Value* emit_transcendental(llvm::IRBuilderBase& b, ScalarOp op, llvm::ArrayRef<llvm::Value*> args) {
  const llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  b.clearFastMathFlags();
  for (const UnaryRow& row : kUnary)
    if (row.op == op) return row.emit({&b, args[0]}).value;
  for (const BinaryRow& row : kBinary)
    if (row.op == op) return row.emit({&b, args[0]}, {&b, args[1]}).value;
  throw InternalError(fmt::format("emit_transcendental: no formula for {}", name_of(op)));
}

}  // namespace tutti::codegen
