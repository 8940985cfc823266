// Pointwise ops that write their first operand, for optimizers and buffers. Each returns its target.
//
// Shapes: the other operand broadcasts to the target. Dtypes: computed in the common type, rounded once to the type of
// the target. Not differentiable: autograd only notes that the target has changed. copy_ is in tutti/ops/copy.h.
// UsageError when the sizes do not broadcast to the target, for a float result in an integer target (truediv_ gives a
// float), for the difference of two booleans, for a target that overlaps itself, or for read-only memory.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

Tensor add_(const Tensor& target, const Tensor& x);
Tensor add_(const Tensor& target, const Scalar& x);
Tensor sub_(const Tensor& target, const Tensor& x);
Tensor sub_(const Tensor& target, const Scalar& x);
Tensor mul_(const Tensor& target, const Tensor& x);
Tensor mul_(const Tensor& target, const Scalar& x);
Tensor truediv_(const Tensor& target, const Tensor& x);
Tensor truediv_(const Tensor& target, const Scalar& x);
Tensor fill_(const Tensor& target, const Scalar& value);
Tensor zero_(const Tensor& target);

}  // namespace tutti
