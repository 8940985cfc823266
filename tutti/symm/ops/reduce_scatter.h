// reduce_scatter: every rank reads its part of all tensors and reduces it.
#pragma once

#include "tutti/core/reduce_op.h"
#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Shapes: [W x m, ...], the same on all ranks, contiguous -> [m, ...]: rows [rank x m, (rank + 1) x m) reduced over
// ranks in the halving tree. The input is not written; it must be in symmetric memory on all ranks or on none. Steps:
// barrier, read n elements, barrier. UsageError on all ranks when their calls differ, or when for any of them W does
// not divide dim 0, the reduction is premul_sum or the dtype is not supported.
Tensor reduce_scatter(const Tensor& input, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

}  // namespace tutti::comm::symm
