// The products of all pairs of rows: the interaction of features in models of clicks.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y[b] holds x[b, i] . x[b, j] for all i > j, in the order (1, 0), (2, 0), (2, 1), (3, 0), ... In f32 and f64 it has
// the bits of these elements of bmm(x, transpose(x, 1, 2)) in strict mode, which computes every product twice and those
// of rows with themselves; narrower rows are multiplied in f32 and rounded once. Shapes: x [B, F, D] -> [B, F (F - 1) /
// 2]. Dtypes: any float. Source: Naumov et al. 2019, "Deep learning recommendation model for personalization and
// recommendation systems", section 2.
Tensor pairwise_dots(const Tensor& x);

// Its gradient: dx[b, i] is the sum of grad[b, (i, j)] x[b, j] over j in the order of rows, in the tree of contractions
// (numerics contract, N3). Shapes: grad [B, F (F - 1) / 2], x [B, F, D] -> [B, F, D] in f32 (f64 for f64).
Tensor pairwise_dots_backward(const Tensor& grad, const Tensor& x);

}  // namespace tutti
