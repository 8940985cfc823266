// Rows of a table, looked up by number.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

inline constexpr int64_t kNoPadding = -1;

// y[.., d] = weight[indices[..], d]. Lookups of row `padding_idx` give it no gradient.
// Shapes: weight [V, D], indices any; y has the sizes of indices and D. Dtypes: weight any, indices i64 or i32.
// Error: an index outside [0, V), named with its position. Gradient: embedding_backward.
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = kNoPadding);

// The gradient of embedding with respect to its table: row v sums the rows of `grad` whose index is v.
// Shapes: grad has the sizes of indices and D; the result is [vocab, D]. Dtypes: f32 (f64 for an f64 gradient).
// The order is that of the numerics contract, N5: the token positions (all dims of indices, row-major) are cut into
// ranges of token_grain(); the rows of a range are added in a chain in token order; ranges are combined by halving their
// number; a range without the row, and a row without a token, is -0.0. The bits do not depend on threads. Row `padding_idx` is
// one without a token.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t vocab, int64_t padding_idx = kNoPadding);

}  // namespace tutti
