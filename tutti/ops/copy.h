// Copies of element data.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A new dense row-major tensor with the elements of `x`. Any shape and dtype.
Tensor clone(const Tensor& x);

// `x` itself when its elements already lie dense in row-major order, else clone(x).
Tensor contiguous(const Tensor& x);

// Writes `x`, broadcast to the sizes of `target` and converted to its dtype, into `target`; gives `target`.
// Error: the sizes do not broadcast to those of `target`; the target is read-only memory.
Tensor copy_(const Tensor& target, const Tensor& x);

}  // namespace tutti
