// A cumulative sum whose terms decay.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y_i = x_i + decay_i y_(i - 1) along `dim`, from the first element to the last; decay_0 is not used. With `from_end`
// y_i = x_i + decay_(i + 1) y_(i + 1), from the last element to the first: decay_i stands between elements i - 1 and i
// either way, so that each form is the gradient of the other. Computed sequentially in f32 (f64 for f64); each result
// is rounded once. Shapes: x and decay of equal sizes; those of y are the same. Dtypes: equal, f64, f32, bf16 or f16.
// UsageError otherwise. Source: definition.
Tensor decayed_cumsum(const Tensor& x, const Tensor& decay, int64_t dim, bool from_end = false);

}  // namespace tutti
