// Softmax and related functions over one dim, all computed with the softmax monoid of numerics contract N10: the result
// of a row does not depend on padding with -inf, on the rest of the batch, or on which dim the row lies along.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// exp(x - max) / sum(exp(x - max)) over `dim`. Shapes: any. A row of all -inf gives NaN. Source: definition.
Tensor softmax(const Tensor& x, int64_t dim);
// x - logsumexp(x) over `dim`.
Tensor log_softmax(const Tensor& x, int64_t dim);
// log(sum(exp(x))) over `dim`, which is dropped, or kept with size 1 with keepdim.
Tensor logsumexp(const Tensor& x, int64_t dim, bool keepdim = false);

}  // namespace tutti
