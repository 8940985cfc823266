// Mean and variance over dims. Result shapes and order of summation are as in tutti/ops/reduction.h.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

struct MeanOptions {
  Dims dims = {};  // empty: all dims
  bool keepdim = false;
};
// sum(x) / n, rounded once to the dtype of x; integers give f32. The mean of no elements is NaN.
Tensor mean(const Tensor& x, const MeanOptions& options = {});

struct VarOptions {
  Dims dims = {};
  bool keepdim = false;
  double correction = 1;  // 1: variance of a sample, 0: variance of a population
};
// sum((x - mean)^2) / max(n - correction, 0), in two passes over the row. Dtypes: floats, computed in f32 (f64 for
// f64). Source: Chan, Golub, LeVeque, "Algorithms for computing the sample variance", the two-pass form.
Tensor var(const Tensor& x, const VarOptions& options = {});
// The square root of var(x), rounded once. Where the result is 0, so is the gradient.
Tensor stddev(const Tensor& x, const VarOptions& options = {});

// Over one dim: mean(x, 1), mean(x, -1, true), var(x, 0). Those of var and stddev take no `keepdim` here, for in this
// place of PyTorch's functions stands `unbiased`: use the options.
template <Integer Dim>
Tensor mean(const Tensor& x, Dim dim, bool keepdim = false) {
  return mean(x, MeanOptions{.dims = {to_int64(dim)}, .keepdim = keepdim});
}
template <Integer Dim>
Tensor var(const Tensor& x, Dim dim) {
  return var(x, VarOptions{.dims = {to_int64(dim)}});
}
template <Integer Dim>
Tensor stddev(const Tensor& x, Dim dim) {
  return stddev(x, VarOptions{.dims = {to_int64(dim)}});
}

}  // namespace tutti
