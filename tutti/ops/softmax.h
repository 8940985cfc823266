// Softmax and its relatives over one dim, on the one softmax monoid of numerics contract N10: a row's result does not depend
// on padding with -inf, nor on what else is in the batch, nor on which dim the row lies along. Rows across memory are taken
// side by side.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// exp(x - max) / sum(exp(x - max)) over `dim`. Shapes: any. A row of -inf only gives NaN. Source: definition.
Tensor softmax(const Tensor& x, int64_t dim);
// x - logsumexp(x) over `dim`.
Tensor log_softmax(const Tensor& x, int64_t dim);
// log(sum(exp(x))) over `dim`, which is dropped.
Tensor logsumexp(const Tensor& x, int64_t dim);

}  // namespace tutti
