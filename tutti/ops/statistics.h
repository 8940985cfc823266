// Mean and variance over dims. Order of summation as in tutti/ops/reduction.h.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

struct MeanOptions {
  Dims dims = {};  // none: all
  bool keepdim = false;
};
// sum(x) / n, rounded once to the type of x; integers give f32. Nothing has the mean NaN.
Tensor mean(const Tensor& x, const MeanOptions& options = {});

struct VarOptions {
  Dims dims = {};
  bool keepdim = false;
  double correction = 1;  // 1: of a sample, 0: of the whole population
};
// sum((x - mean)^2) / max(n - correction, 0), two passes over the row. Dtypes: floats, computed as f32 or f64.
// Source: Chan, Golub, LeVeque, "Algorithms for computing the sample variance", the two-pass form.
Tensor var(const Tensor& x, const VarOptions& options = {});
// The square root of var(x), rounded once; where it is 0 the gradient is 0.
Tensor stddev(const Tensor& x, const VarOptions& options = {});

}  // namespace tutti
