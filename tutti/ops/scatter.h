// Elements put where an index says.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A copy of x in which y[i, index[i, j, k], k] = source[i, j, k] for dim = 1, and so on. Where several elements go to
// one place, the one with the highest j wins.
// Shapes: source and index have equal sizes, nowhere larger than x but along `dim`. Dtypes: x and source equal, index
// i64 or i32. Error: an index outside [0, size of dim). The gradient supposes that no place is written twice.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);

}  // namespace tutti
