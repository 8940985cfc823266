// Embedding lookup: rows of a table, selected by index.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

inline constexpr int64_t kNoPadding = -1;

// y[.., d] = weight[indices[..], d]. Row `padding_idx` gets no gradient.
// Shapes: weight [V, D], indices [...] -> [..., D]. Dtypes: weight any, indices i64 or i32.
// UsageError for an index outside [0, V), naming its position. Gradient: embedding_backward.
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = kNoPadding);

// The gradient of embedding with respect to its table: row v is the sum of the rows of `grad` whose index is v.
// Shapes: indices [...], grad [..., D] -> [vocab, D]. Dtypes: f32 (f64 for an f64 gradient).
// Order of summation (numerics contract, N5): the token positions (all dims of indices, row-major) are divided into
// ranges of token_grain(); within a range the terms of a row are added one after another in token order; the ranges are
// combined by halving. A range that does not use the row contributes -0.0, and a row that no token uses, as well as row
// `padding_idx`, is -0.0. The bits do not depend on the number of threads.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t vocab, int64_t padding_idx = kNoPadding);

}  // namespace tutti
