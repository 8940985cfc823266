// Elementwise selection.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// a where `condition` is true, else b; all operands broadcast. Dtypes: condition boolean; a and b as in
// tutti/ops/binary.h. The gradient of the value not selected is 0, even where that value is NaN or infinite. UsageError
// for another dtype of `condition`.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b);
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b);

// where(mask, value, x): x with `value` wherever `mask` is true. Shapes: mask broadcasts to x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value);

}  // namespace tutti
