// Where elements are not zero: results whose size depends on data.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Indices of the elements of x that are not zero (NaN is not), in row-major order. Shapes: i64 [count, dims of x].
// Reads the count on the host: a compiled function needs OnBreak::segment, or nonzero_static(). Not differentiable.
Tensor nonzero(const Tensor& x);

// The first `size` of them; `fill` in the rows behind the last. Shapes: i64 [size, dims of x]. Error: size below 0.
Tensor nonzero_static(const Tensor& x, SymInt size, int64_t fill = -1);

// The elements of x where `mask` is true, in row-major order; x and mask broadcast. Dtypes: mask bool. Reads their count on the host,
// as nonzero(). Gradient: with respect to x, zero where the mask is false.
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace tutti
