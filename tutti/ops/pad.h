// Padding with a constant.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// x with `before` elements of `value` added at the beginning of dim `dim` and `after` at its end. Dtypes: all.
// UsageError for a negative count (use narrow).
Tensor pad(const Tensor& x, int64_t dim, int64_t before, int64_t after, double value = 0.0);

}  // namespace tutti
