// Matrix products of 8-bit integers.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// The matrix product of two i8 tensors as i32, exact modulo 2^32: for k up to 131071 no sum can wrap; a longer one may,
// as in two's complement. Shapes: a [..., m, k], b [k, n] -> [..., m, n], any strides. Dtypes: i8 and i8 to i32.
// UsageError when the inner sizes differ or for other dtypes. No gradient. Source: definition.
Tensor int_mm(const Tensor& a, const Tensor& b);

}  // namespace tutti
