// Tensors turned around.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// The elements of the dims `dims` in opposite order (a copy). An empty list means all dims.
Tensor flip(const Tensor& x, const Dims& dims = {});

// Element i of dim `dim` becomes element (i + shift) mod size.
Tensor roll(const Tensor& x, int64_t shift, int64_t dim);

}  // namespace tutti
