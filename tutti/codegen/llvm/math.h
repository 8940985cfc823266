// Transcendental functions of Expr as LLVM IR: Tutti's own polynomials (numerics contract, N2).
//
// Every function uses IEEE add, mul, div, sqrt, fma, rounding, integer and select operations lane by lane, so the bits
// do not depend on the number of lanes or on the instruction set. No library is called. Denormals are kept; NaN,
// infinities and signed zeros follow C99 Annex F. Errors in ULP, measured: docs/math_ulp.md.
#pragma once

#include "tutti/core/expr.h"

namespace llvm {
class IRBuilderBase;
class Value;
template <typename T>
class ArrayRef;
}  // namespace llvm

namespace tutti::codegen {

// op(args): exp to atanh, erf, erfinv, sigmoid, lgamma, pow, atan2. Arguments are f32 or f64 lanes of one type, which
// is the result's. The builder stands at the end of a block without terminator; sin, cos and tan end that block (rare
// lanes branch), so what follows is the builder's block at return. InternalError for an op that is not in the list.
llvm::Value* emit_transcendental(llvm::IRBuilderBase& b, ScalarOp op, llvm::ArrayRef<llvm::Value*> args);

}  // namespace tutti::codegen
