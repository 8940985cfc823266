// Inclusive scans along a dim, computed sequentially from the first element to the last.
// Shapes: the results have the shape of x.
#pragma once

#include <utility>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Cumulative sum and product. Dtypes: floats keep their type, narrow ones are accumulated in f32 and each result is
// rounded once; integers and booleans give i64. The gradient of cumprod is right for any number of zeros.
Tensor cumsum(const Tensor& x, int64_t dim);
Tensor cumprod(const Tensor& x, int64_t dim);
// Cumulative maximum and minimum, each with its position (i64) along the dim. Among equal elements the first is chosen,
// where PyTorch chooses the last; after a NaN all results are NaN.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);

}  // namespace tutti
