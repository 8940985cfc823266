// New sizes for the same elements, taken in row-major order.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A view of `x` with other sizes. One size may be -1 and is inferred from the others.
// Shapes: the product of `sizes` is the number of elements of x. Dtypes: all.
// UsageError for another product, or when the strides of x do not allow a view (use reshape, which then copies).
Tensor view(const Tensor& x, const Shape& sizes);

// As view, but copies when the strides of x do not allow a view.
Tensor reshape(const Tensor& x, const Shape& sizes);

// Merges dims start..end (inclusive) into one; a 0-dim x becomes [1].
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);

// Splits dim `dim` into `sizes` (one may be -1).
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);

}  // namespace tutti
