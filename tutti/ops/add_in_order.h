#pragma once

#include <span>

#include "tutti/tensor/tensor.h"

namespace tutti {

// The sum ((t0 + t1) + t2) + ... in the order of the list, each partial sum rounded to the dtype of the tensors: the
// bits of that many calls of add() in one pass over memory. Backward sums the cotangents of a value with it, in the
// order of the value's consumers. Shapes: any, all equal. Dtypes: any float or integer, all equal. Error: UsageError
// naming the tensor that differs, or for an empty list. Source: definition.
Tensor add_in_order(std::span<const Tensor> tensors);

}  // namespace tutti
