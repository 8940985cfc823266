// all_reduce in two passes: every rank reduces its share of the elements and writes it to all ranks.
#pragma once

#include "tutti/core/reduce_op.h"
#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// In place, with the bits of one_shot_all_reduce(). Shapes: the same on all ranks, contiguous; any number of elements
// and ranks. The tensor must be in symmetric memory on all ranks or on none (then it is copied through the workspace).
// Steps: barrier, reduce n / W elements, write W x n / W elements, barrier. Bytes read and written per rank: 2 x n x
// itemsize. Errors are those of one_shot_all_reduce().
void two_shot_all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

// In-place all_reduce with the algorithm that the tuning table chooses (tuning.h), which must be the same on all ranks.
void all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

}  // namespace tutti::comm::symm
