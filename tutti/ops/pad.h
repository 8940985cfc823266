// A constant put around a tensor.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `before` and `after` elements of `value` at the two ends of dim `dim`. Dtypes: all. Error: a negative count (use narrow).
Tensor pad(const Tensor& x, int64_t dim, int64_t before, int64_t after, double value = 0.0);

}  // namespace tutti
