// A view by memory position.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Elements offset + sum(index[d] * strides[d]) of the storage of `x`, counted in elements from the start of the storage.
// It has no gradient: it names memory, not elements of x. Error: an element outside the storage.
Tensor as_strided(const Tensor& x, const Extents& sizes, const Extents& strides, int64_t offset = 0);

}  // namespace tutti
