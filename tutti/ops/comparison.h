// Elementwise comparisons, in the common type of the operands (tutti/ops/binary.h); the result is boolean.
// As in IEEE 754, NaN is unequal to everything, itself included, and neither less nor greater.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

#define TUTTI_DECLARE_COMPARISON(op)           \
  Tensor op(const Tensor& a, const Tensor& b); \
  Tensor op(const Tensor& a, const Scalar& b); \
  Tensor op(const Scalar& a, const Tensor& b);

TUTTI_DECLARE_COMPARISON(eq)
TUTTI_DECLARE_COMPARISON(ne)
TUTTI_DECLARE_COMPARISON(lt)
TUTTI_DECLARE_COMPARISON(le)
TUTTI_DECLARE_COMPARISON(gt)
TUTTI_DECLARE_COMPARISON(ge)

#undef TUTTI_DECLARE_COMPARISON

}  // namespace tutti
