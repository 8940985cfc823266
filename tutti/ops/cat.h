// Concatenation of tensors.
#pragma once

#include <initializer_list>
#include <span>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Concatenates the tensors along `dim`.
// Shapes: equal except in `dim`. Dtypes: equal. UsageError for an empty list or for sizes or dtypes that differ.
Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0);

// Joins the tensors along a new dim, which becomes dim `dim` of the result. Shapes and dtypes: equal.
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0);

}  // namespace tutti
