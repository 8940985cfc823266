// Matrix products of groups: experts over their tokens, and the gradients of that.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct GroupedMmOptions {
  // i64 or i32 [T]: where each row of the ragged dim stands among `position_count` token positions; inside a group they
  // must not decrease. What a product makes of the ragged dim then follows the numerics contract, N5: ranges of
  // token_grain() positions, one chain of multiply-adds each, joined by halving their number; an empty range counts
  // nothing. So the bits do not depend on who holds which rows, as long as position_count is that of the whole batch.
  // Without positions a group is summed as matmul() sums those rows alone, ContractionAxis::tokens.
  Tensor positions;
  SymInt position_count = 0;
  std::optional<DType> out_dtype;  // default: the common type. f32 keeps a partial value unrounded (N4)
};

// One matrix product per group. Group g is [offsets[g - 1], offsets[g]) of the ragged dim, which has T elements; a group
// may be empty, of any size, and start anywhere.
// Shapes: rows        a [T, k],    b [G, k, n] -> [T, n]      rows of group g times b[g]
//         columns     a [G, m, k], b [k, T]    -> [m, T]      a[g] times the columns of group g
//         contraction a [m, T],    b [T, n]    -> [G, m, n]   the sum over the rows of group g
// Elements of no group (from offsets[G - 1] on) and sums over empty groups are -0.0, the identity of a sum: nothing is
// left uninitialised.
// Dtypes: a, b any two floats (f64, f32, bf16, f16), offsets i64 or i32 [G]. Accumulates as matmul() does, with its bits.
// Gradients: of a 3-D operand f32 (f64 for f64), a contraction with the positions of the call; of a 2-D one its own dtype.
// Error: offsets that are negative, decrease or lie beyond T, positions out of order or range, with group and values.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& offsets, const GroupedMmOptions& options = {});
// Groups of equal size: a [G, m, k], b [G, k, n] -> [G, m, n], as `rows` over G * m of them. bmm() with gradients of b as
// weights have them.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const GroupedMmOptions& options = {});

}  // namespace tutti
