// Grouped matrix products: each expert applied to its own tokens, and the gradients of that.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct GroupedMmOptions {
  // i64 or i32 [T]: the token position, below `position_count`, of each row of the ragged dim; positions must not
  // decrease within a group. A sum over the ragged dim then follows numerics contract N5: one chain of multiply-adds
  // for each range of token_grain() positions, and the ranges combined by halving, where an empty range contributes
  // nothing. The bits then do not depend on which rank holds which rows, as long as position_count is that of the whole
  // batch. Without positions a group is summed as matmul() with ContractionAxis::tokens sums its rows alone.
  Tensor positions;
  SymInt position_count = 0;
  std::optional<DType> out_dtype;  // default: the common type. f32 leaves a partial sum unrounded (N4)
};

// One matrix product per group. Group g is [offsets[g - 1], offsets[g]) of the ragged dim, which has T elements; a
// group may be empty, of any size, and start anywhere. Shapes: rows        a [T, k],    b [G, k, n] -> [T, n]      rows
// of group g times b[g]
//         columns     a [G, m, k], b [k, T]    -> [m, T]      a[g] times the columns of group g
//         contraction a [m, T],    b [T, n]    -> [G, m, n]   the sum over the rows of group g
// Results that belong to no group (from offsets[G - 1] on) and sums over empty groups are -0.0, the identity of
// addition. Dtypes: a, b any two floats (f64, f32, bf16, f16), offsets i64 or i32 [G]. Accumulates as matmul() does,
// with the same bits. Gradients: that of a 3-D operand is f32 (f64 for f64), a contraction with the positions of the
// call; that of a 2-D operand has its own dtype. UsageError, naming the group and the values, for offsets that are
// negative, decrease or exceed T, and for positions out of order or range.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& offsets, const GroupedMmOptions& options = {});
// Groups of equal size: a [G, m, k], b [G, k, n] -> [G, m, n], computed as the `rows` form over G * m rows. Unlike in
// bmm(), the gradient of b is that of a weight: f32 and summed over tokens.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const GroupedMmOptions& options = {});

}  // namespace tutti
