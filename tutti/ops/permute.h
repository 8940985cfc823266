// Views with the dims of a tensor in another order.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Dim k of the result is dim order[k] of x. UsageError when `order` is not a permutation of the dims of x.
Tensor permute(const Tensor& x, const Dims& order);
// Swaps two dims.
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
// Swaps the last two dims; x must have at least two.
Tensor t(const Tensor& x);

}  // namespace tutti
