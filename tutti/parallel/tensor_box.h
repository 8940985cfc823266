// TensorBox: a tensor of which each rank holds a box of its own, in global coordinates.
#pragma once

#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// A tensor of which ranks hold boxes: `values` is that from element `first` on. A rank that has none of it has
// undefined values.
struct TensorBox {
  std::string name;
  DType dtype;
  Extents sizes;  // of the whole tensor
  Extents first;
  Tensor values;
  bool is_state;  // of an optimizer
  bool is_copy;   // whether a rank of a lower number holds the same box, so that each is written once
};

}  // namespace tutti::parallel
