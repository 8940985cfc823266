// The largest and smallest elements over dims, and where they are.
//
// Shapes: the reduced dims disappear, or become 1 with keepdim. NaN wins over every number. Error: a row without elements.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct ExtremeOptions {
  Dims dims = {};  // none: all
  bool keepdim = false;
};
// Largest and smallest element, in the dtype of x. Equal extremes share the gradient evenly.
Tensor amax(const Tensor& x, const ExtremeOptions& options = {});
Tensor amin(const Tensor& x, const ExtremeOptions& options = {});

struct ArgOptions {
  std::optional<int64_t> dim = {};  // none: position in the flattened tensor
  bool keepdim = false;
};
// i64 position of the largest and smallest element along a dim; the first of equal ones, the first NaN before all.
Tensor argmax(const Tensor& x, const ArgOptions& options = {});
Tensor argmin(const Tensor& x, const ArgOptions& options = {});

}  // namespace tutti
