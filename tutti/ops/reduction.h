// Reductions over dims: sums, products, truth.
//
// Shapes: the dims in `options.dims` disappear, or become 1 with keepdim; no dims means all of them.
// Order: n elements are split into halves of ceil(n/2) and floor(n/2) until a part has at most `leaf` elements, whose 16
// lanes are combined by halving (numerics contract, N3): the bits do not depend on threads, strides or layout.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct ReduceOptions {
  Dims dims = {};
  bool keepdim = false;
  std::optional<DType> dtype = {};  // sum and prod: type of the result
  int64_t leaf = 0;                 // sum: elements per leaf; 0 means 512
};

// Sum. Dtypes: floats keep their type, narrow ones are added in f32 and rounded once; integers and booleans give i64.
// Nothing sums to -0.0. Error: |computed - exact| <= (log2(n / leaf) + leaf / 16 + 4) eps sum |x|.
Tensor sum(const Tensor& x, const ReduceOptions& options = {});
// Product; dtypes as sum. The gradient is right for any number of zeros.
Tensor prod(const Tensor& x, const ReduceOptions& options = {});
// Whether any element, or all elements, differ from 0. Nothing gives false, and true.
Tensor any(const Tensor& x, const ReduceOptions& options = {});
Tensor all(const Tensor& x, const ReduceOptions& options = {});

}  // namespace tutti
