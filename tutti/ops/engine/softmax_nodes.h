// The monoid (m, l) of softmax (numerics contract, N10) as expressions: maximum and sum of exponentials of two neighbouring
// parts of a row.
#pragma once

#include <limits>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

struct SoftmaxNode {
  Expr m, l;
};

// The formula of row kernels. A part of -inf alone contributes nothing.
inline SoftmaxNode combined(RecipeBuilder& b, const SoftmaxNode& left, const SoftmaxNode& right) {
  const Expr m = apply_scalar(ScalarOp::maximum, left.m, right.m);
  const Expr none = b.constant(-std::numeric_limits<double>::infinity(), m.dtype());
  const Expr origin = where(apply_scalar(ScalarOp::eq, m, none), b.constant(0.0, m.dtype()), m);
  const Expr sl = apply_scalar(ScalarOp::exp, left.m - origin), sr = apply_scalar(ScalarOp::exp, right.m - origin);
  return {m, apply_scalar(ScalarOp::fma, left.l, sl, right.l * sr)};
}

}  // namespace tutti
