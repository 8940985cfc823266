// The monoid (m, r) of cross entropy (numerics contract, N10) as expressions: the maximum of a part of a row, and the
// sum of exp(x - m) over it without the first x that is m. Nothing is added to 1, so a small rest keeps its digits.
#pragma once

#include <limits>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

struct RestNode {
  Expr m, r;
};

// Two neighbouring parts together, by the formula of row kernels. A part of -inf alone contributes nothing.
inline RestNode combined(RecipeBuilder& b, const RestNode& left, const RestNode& right) {
  const DType dtype = left.m.dtype();
  const Expr zero = b.constant(0.0, dtype), none = b.constant(-std::numeric_limits<double>::infinity(), dtype);
  const Expr m = apply_scalar(ScalarOp::maximum, left.m, right.m),
             low = apply_scalar(ScalarOp::minimum, left.m, right.m);
  const Expr is_empty = apply_scalar(ScalarOp::eq, m, none);
  const Expr distance =
      where(apply_scalar(ScalarOp::eq, left.m, right.m), where(is_empty, none, zero), low - where(is_empty, zero, m));
  const Expr left_leads = apply_scalar(ScalarOp::ge, left.m, right.m);
  const Expr others = where(left_leads, right.r, left.r) + b.constant(1.0, dtype);
  return {m, apply_scalar(ScalarOp::fma, apply_scalar(ScalarOp::exp, distance), others,
                          where(left_leads, left.r, right.r))};
}

// Numbers of a row are few: they are computed in f64 and rounded once.
inline Expr wide(Expr e) { return cast(e, DType::f64); }
// log of the sum of all exponentials.
inline Expr logsumexp_of(const RestNode& all) {
  return cast(wide(all.m) + apply_scalar(ScalarOp::log1p, wide(all.r)), all.m.dtype());
}
// -log of the probability of an element x, which is not above m.
inline Expr wide_surprise_of(const RestNode& all, Expr x) {
  return (wide(all.m) - wide(x)) + apply_scalar(ScalarOp::log1p, wide(all.r));
}
inline Expr surprise_of(const RestNode& all, Expr x) { return cast(wide_surprise_of(all, x), all.m.dtype()); }

inline Expr probability(RecipeBuilder& b, const RestNode& all, Expr x) {
  return apply_scalar(ScalarOp::exp, x - all.m) / (all.r + b.constant(1.0, x.dtype()));
}
// The probability of an element x, less 1: exact to rounding also where that is nearly nothing.
inline Expr probability_less_one(RecipeBuilder& b, const RestNode& all, Expr x) {
  const Expr one = b.constant(1.0, x.dtype());
  return where(apply_scalar(ScalarOp::eq, x, all.m), -(all.r / (all.r + one)), probability(b, all, x) - one);
}
// The probability of an element x, less 1 where `hit`.
inline Expr probability_less(RecipeBuilder& b, const RestNode& all, Expr x, Expr hit) {
  return where(hit, probability_less_one(b, all, x), probability(b, all, x));
}

}  // namespace tutti
