// The most frequent element.
#pragma once

#include "tutti/ops/sort.h"

namespace tutti {

// The most frequent element of each line along `dim`, and its index (i64) in the line. Of elements that occur equally
// often, the smallest is returned, and of its indices the lowest; PyTorch returns the highest of them. -0 equals +0.
// NaN is not equal to itself and larger than every number, so it is the result only for a line of NaN alone. The
// gradient goes to the selected element. Shapes: `dim` is removed, or has size 1 with keepdim. Dtypes: all. UsageError
// when `dim` has no elements. Source: definition.
SortResult mode(const Tensor& x, int64_t dim = -1, bool keepdim = false);

}  // namespace tutti
