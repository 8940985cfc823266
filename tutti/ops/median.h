// Medians.
//
// The median of n elements is the one with floor((n - 1) / 2) elements before it in ascending order: of two in the
// middle, the lower. -0 equals +0. Dtypes: all; the result has the dtype of x. Source: definition.
#pragma once

#include "tutti/ops/sort.h"

namespace tutti {

// The median of all elements: NaN if any of them is NaN, or if x is an empty float tensor. UsageError for other empty
// tensors. Elements that are equal to the median share the gradient evenly.
Tensor median(const Tensor& x);
// The median of the elements that are not NaN: NaN if there are none.
Tensor nanmedian(const Tensor& x);

// The median of each line along `dim` and its index (i64) in the line: the lowest of the indices of equal elements,
// whatever the number of threads; PyTorch returns any of them. A line with NaN gives its first NaN. The gradient goes
// to the selected element. Shapes: `dim` is removed, or has size 1 with keepdim. UsageError when it has no elements.
SortResult median(const Tensor& x, int64_t dim, bool keepdim = false);
// As above without the elements that are NaN. A line of NaN alone gives its first NaN.
SortResult nanmedian(const Tensor& x, int64_t dim, bool keepdim = false);

}  // namespace tutti
