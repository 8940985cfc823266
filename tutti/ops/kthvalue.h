// The element of a given rank.
#pragma once

#include "tutti/ops/sort.h"

namespace tutti {

// The k-th smallest element of each line along `dim`, k counted from 1, and its index (i64) in the line: the lowest of
// the indices of equal elements, whatever the number of threads; PyTorch returns any of them. NaN is larger than every
// number; -0 equals +0. The gradient goes to the selected element. Shapes: `dim` is removed, or has size 1 with
// keepdim. Dtypes: all. UsageError for k outside [1, size of dim]. Source: definition.
SortResult kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);

}  // namespace tutti
