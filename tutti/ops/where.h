// Choosing between two values, element by element.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// a where `condition` is true, else b. All broadcast. Dtypes: condition boolean; a and b as in tutti/ops/binary.h.
// The gradient of the value not chosen is 0, also where it is NaN or infinite. Error: the condition is not boolean.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b);
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b);

// x with `value` wherever `mask` is true. Shapes: mask broadcasts to x. Source: where(mask, value, x).
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value);

}  // namespace tutti
