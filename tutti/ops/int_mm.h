// Products of 8-bit integers.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// The matrix product of i8 operands as i32, exact modulo 2^32: the products of at most 131071 pairs cannot wrap, whatever
// they are; longer sums may, as two's complement does.
// Shapes: a [..., m, k], b [k, n] -> [..., m, n]. Dtypes: i8 and i8 to i32. Any strides. Error: inner sizes differ, other
// dtypes. No gradient. Source: definition.
Tensor int_mm(const Tensor& a, const Tensor& b);

}  // namespace tutti
