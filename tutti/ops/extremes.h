// Maxima and minima over dims, and their positions.
//
// Shapes: the reduced dims are removed, or kept with size 1 with keepdim. If a row contains NaN, the result is NaN (or
// its position). UsageError for a row without elements.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct ExtremeOptions {
  Dims dims = {};  // empty: all dims
  bool keepdim = false;
};
// The largest and the smallest element, in the dtype of x. Equal extremes share the gradient evenly.
Tensor amax(const Tensor& x, const ExtremeOptions& options = {});
Tensor amin(const Tensor& x, const ExtremeOptions& options = {});

struct ArgOptions {
  std::optional<int64_t> dim = {};  // not set: the position in the flattened tensor
  bool keepdim = false;
};
// The position (i64) of the largest and the smallest element along a dim: the first NaN if there is one, else the first
// of equal elements.
Tensor argmax(const Tensor& x, const ArgOptions& options = {});
Tensor argmin(const Tensor& x, const ArgOptions& options = {});

// Over one dim: amax(x, 1), argmax(x, -1, true).
#define TUTTI_OVER_ONE_DIM(op, Options)                                 \
  template <Integer Dim>                                                \
  Tensor op(const Tensor& x, Dim dim, bool keepdim = false) {           \
    return op(x, Options{.dims = {to_int64(dim)}, .keepdim = keepdim}); \
  }
TUTTI_OVER_ONE_DIM(amax, ExtremeOptions)
TUTTI_OVER_ONE_DIM(amin, ExtremeOptions)
#undef TUTTI_OVER_ONE_DIM
template <Integer Dim>
Tensor argmax(const Tensor& x, Dim dim, bool keepdim = false) {
  return argmax(x, ArgOptions{.dim = to_int64(dim), .keepdim = keepdim});
}
template <Integer Dim>
Tensor argmin(const Tensor& x, Dim dim, bool keepdim = false) {
  return argmin(x, ArgOptions{.dim = to_int64(dim), .keepdim = keepdim});
}

}  // namespace tutti
