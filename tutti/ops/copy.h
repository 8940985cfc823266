// Copies of tensors.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A copy of `x` in new memory, dense and row-major. Any shape and dtype.
Tensor clone(const Tensor& x);

// `x` itself when it is already dense and row-major, else clone(x).
Tensor contiguous(const Tensor& x);

// Writes `x`, broadcast to the sizes of `target` and converted to its dtype, into `target`, and returns `target`.
// UsageError when `x` does not broadcast to the sizes of `target`, or when `target` is read-only memory.
Tensor copy_(const Tensor& target, const Tensor& x);

}  // namespace tutti
