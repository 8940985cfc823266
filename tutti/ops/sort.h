// Sorting.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

struct SortResult {
  Tensor values;
  Tensor indices;  // i64: the position of each value along the dim of the input
};

// The elements along `dim` in ascending (or descending) order. The sort is stable: among equal elements the lower index
// comes first, in both directions. NaN is larger than every number; -0 equals +0. Dtypes: all.
SortResult sort(const Tensor& x, int64_t dim = -1, bool descending = false);
// The indices that sort() returns.
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false);

}  // namespace tutti
