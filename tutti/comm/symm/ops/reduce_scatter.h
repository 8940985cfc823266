// reduce_scatter: every rank reads its part of all tensors and reduces it.
#pragma once

#include "tutti/comm/reduce_op.h"
#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Shapes: [W x m, ...], the same on all ranks, contiguous -> [m, ...], rows [rank x m, (rank + 1) x m) reduced over ranks
// in the halving tree. The input is not written; it lies in symmetric memory on all ranks or on none.
// Steps: meet, read n, meet. UsageError on all ranks: the calls differ, or dim 0 of one of them does not divide by W, or
// it gives premul_sum or a wrong dtype.
Tensor reduce_scatter(const Tensor& input, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

}  // namespace tutti::comm::symm
