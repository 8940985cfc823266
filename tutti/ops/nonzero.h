// Selection of non-zero elements. The sizes of the results depend on the data.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// The indices of the elements of x that are not zero (NaN counts as non-zero), in row-major order. Shape: i64 [count,
// x.ndim()]. Reads the count on the host, so a compiled function needs OnBreak::segment, or nonzero_static(). Not
// differentiable.
Tensor nonzero(const Tensor& x);

// The first `size` of these indices; rows after the last one are filled with `fill`. Shape: i64 [size, x.ndim()].
// UsageError for a negative size.
Tensor nonzero_static(const Tensor& x, SymInt size, int64_t fill = -1);

// The elements of x where `mask` is true, in row-major order, as a 1-D tensor; x and mask broadcast. Dtypes: mask
// boolean. Reads the count on the host, as nonzero() does. The gradient of x is zero where the mask is false.
Tensor masked_select(const Tensor& x, const Tensor& mask);

}  // namespace tutti
