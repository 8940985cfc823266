// New sizes for the same elements in row-major order.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `x` with other sizes on the same storage. One size may be -1: what is left.
// Shapes: the product of `sizes` is the number of elements of x. Dtypes: all.
// Error: another product; strides of x that no strides of the new sizes can follow (use reshape, which copies then).
Tensor view(const Tensor& x, const Shape& sizes);

// As view, but copies when the strides of x do not allow a view.
Tensor reshape(const Tensor& x, const Shape& sizes);

// Merges dims start..end (inclusive) into one; a 0-dim x becomes [1].
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);

// Splits dim `dim` into `sizes` (one may be -1).
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);

}  // namespace tutti
