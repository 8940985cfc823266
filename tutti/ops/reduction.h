// Reductions over dims: sum, prod, any, all.
//
// Shapes: the dims in `options.dims` are removed, or kept with size 1 with keepdim; an empty list means all dims.
// Order: n elements are split into halves of ceil(n/2) and floor(n/2) until a part has at most `leaf` elements; a leaf
// is summed in 16 lanes, which are combined by halving (numerics contract, N3). The bits depend neither on threads nor
// on strides or layout.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct ReduceOptions {
  Dims dims = {};
  bool keepdim = false;
  std::optional<DType> dtype = {};  // sum and prod: the dtype of the result
  int64_t leaf = 0;                 // sum: elements per leaf; 0: 512
};

// Sum. Dtypes: floats keep their type, narrow ones are added in f32 and rounded once; integers and booleans give i64.
// An empty sum is -0.0. Error: |computed - exact| <= (log2(n / leaf) + leaf / 16 + 4) eps sum |x|.
Tensor sum(const Tensor& x, const ReduceOptions& options = {});
// Product; dtypes as sum. The gradient is right for any number of zeros.
Tensor prod(const Tensor& x, const ReduceOptions& options = {});
// Whether any element differs from 0 (false for no elements), or all of them do (true for no elements). The result is
// boolean.
Tensor any(const Tensor& x, const ReduceOptions& options = {});
Tensor all(const Tensor& x, const ReduceOptions& options = {});

// Over one dim, as in PyTorch: sum(x, 1), sum(x, -1, true).
#define TUTTI_OVER_ONE_DIM(op, Options)                                 \
  template <Integer Dim>                                                \
  Tensor op(const Tensor& x, Dim dim, bool keepdim = false) {           \
    return op(x, Options{.dims = {to_int64(dim)}, .keepdim = keepdim}); \
  }
TUTTI_OVER_ONE_DIM(sum, ReduceOptions)
TUTTI_OVER_ONE_DIM(prod, ReduceOptions)
TUTTI_OVER_ONE_DIM(any, ReduceOptions)
TUTTI_OVER_ONE_DIM(all, ReduceOptions)
#undef TUTTI_OVER_ONE_DIM

}  // namespace tutti
