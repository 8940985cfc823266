// Tensors joined along a dim.
#pragma once

#include <initializer_list>
#include <span>

#include "tutti/tensor/tensor.h"

namespace tutti {

// The tensors one after another along `dim`.
// Shapes: equal but for `dim`. Dtypes: equal. Error: no tensor, or sizes or dtypes that differ.
Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0);

// The tensors one after another along a new dim `dim`. Shapes and dtypes: equal.
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0);

}  // namespace tutti
