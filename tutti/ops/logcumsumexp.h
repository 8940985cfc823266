// Cumulative sums of exponentials.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y_i = log(exp(x_0) + ... + exp(x_i)) along `dim`, from the first element to the last, without overflow: the running
// maximum and the rest of the sum are carried apart (numerics contract, N10). -inf where all elements up to i are -inf;
// NaN after a NaN. Shapes: that of x. Dtypes: f64, f32, bf16, f16; narrow ones are summed in f32 and each result is
// rounded once. UsageError for other dtypes. Gradient: 0 at elements of -inf, where PyTorch gives NaN as long as the
// sum is empty. Source: definition.
Tensor logcumsumexp(const Tensor& x, int64_t dim);

}  // namespace tutti
