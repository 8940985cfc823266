// Running combinations along a dim, inclusive, from the first element to the last in one chain.
// Shapes: those of x. The first element of a row is its own result.
#pragma once

#include <utility>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Running sum and product. Dtypes: floats keep their type, the chain of narrow ones runs in f32 and every result is
// rounded once; integers and booleans give i64. The gradient of cumprod is right for any number of zeros.
Tensor cumsum(const Tensor& x, int64_t dim);
Tensor cumprod(const Tensor& x, int64_t dim);
// Running extreme and its i64 position along the dim; the first of equal ones, and NaN stays once it came.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);

}  // namespace tutti
