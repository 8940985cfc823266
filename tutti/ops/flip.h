// Elements in reversed or rotated order.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A copy of x with the order of elements reversed along `dims`. An empty list means all dims.
Tensor flip(const Tensor& x, const Dims& dims = {});

// A copy of x rotated along `dim`: element i becomes element (i + shift) mod size.
Tensor roll(const Tensor& x, int64_t shift, int64_t dim);

}  // namespace tutti
