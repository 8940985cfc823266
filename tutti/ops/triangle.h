// The lower and the upper triangle of matrices.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A copy of x in which the elements above a diagonal are zero: of each matrix of the last two dims those with column -
// row <= diagonal are kept.
//   Shapes: x [..., rows, columns] with any sizes, also 0; the result has the sizes of x. diagonal 0 is the main one,
//   positive ones lie above it; one outside the matrix keeps or leaves out everything.
//   Dtypes: any that is no wrapper's; the result has that of x.
//   Error: UsageError when x has fewer than two dims.
//   Source: torch.tril.
Tensor tril(const Tensor& x, int64_t diagonal = 0);

// A copy of x in which the elements below a diagonal are zero: those with column - row >= diagonal are kept. All else
// is as in tril.
//   Source: torch.triu.
Tensor triu(const Tensor& x, int64_t diagonal = 0);

}  // namespace tutti
