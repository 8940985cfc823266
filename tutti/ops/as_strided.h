// A view with given sizes, strides and storage offset.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A view whose element at `index` is element offset + sum(index[d] * strides[d]) of the storage of `x`; offset and
// strides count elements, from the start of the storage. It has no gradient. UsageError when an element would lie
// outside the storage.
Tensor as_strided(const Tensor& x, const Extents& sizes, const Extents& strides, int64_t offset = 0);

}  // namespace tutti
