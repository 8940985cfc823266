// The sum of all elements of a row but one, for the gradients of losses: their value is small where one element is
// nearly the whole sum, and subtracting that element from the rounded sum would leave the rounding error alone.
#pragma once

#include <algorithm>
#include <cmath>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// A sum in two parts: the elements whose absolute value is the largest, `size`, and all others. Numbers or expressions.
template <class T>
struct SplitSum {
  T size, largest, rest;
};

inline SplitSum<Expr> split_sum(RecipeBuilder& b, Expr x) {
  const Expr none = b.constant(-0.0, x.dtype()), magnitude = apply_scalar(ScalarOp::abs, x);
  const Expr size = b.reduce(codegen::ReduceOp::max, magnitude),
             is_largest = apply_scalar(ScalarOp::eq, magnitude, size);
  return {size, b.reduce(codegen::ReduceOp::sum, where(is_largest, x, none)),
          b.reduce(codegen::ReduceOp::sum, where(is_largest, none, x))};
}
// The sum without x, one of its elements. When x alone is the largest, the first part less x is exactly nothing.
inline Expr without(const SplitSum<Expr>& sum, Expr x) {
  return where(apply_scalar(ScalarOp::eq, apply_scalar(ScalarOp::abs, x), sum.size), (sum.largest - x) + sum.rest,
               sum.largest + (sum.rest - x));
}

// The same for references. at(i): element i < n.
template <class At>
SplitSum<double> split_sum(int64_t n, At at) {
  SplitSum<double> sum{0, -0.0, -0.0};
  for (int64_t i = 0; i < n; ++i) {
    const double size = std::fabs(at(i));
    if (std::isnan(size)) return {size, size, size};
    sum.size = std::max(sum.size, size);
  }
  for (int64_t i = 0; i < n; ++i) (std::fabs(at(i)) == sum.size ? sum.largest : sum.rest) += at(i);
  return sum;
}
inline double without(const SplitSum<double>& sum, double x) {
  return std::fabs(x) == sum.size ? (sum.largest - x) + sum.rest : sum.largest + (sum.rest - x);
}

}  // namespace tutti
