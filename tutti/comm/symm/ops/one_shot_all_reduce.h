// all_reduce in one pass: every rank reads all buffers and reduces them itself.
#pragma once

#include "tutti/comm/reduce_op.h"
#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Reduces over ranks in the halving tree (numerics contract, N4): the same bits on every rank, for every algorithm.
// Shapes: the same on all ranks, contiguous -> the same. Dtypes: what the reduction takes. The input is not written; it
// lies in symmetric memory on all ranks or on none (then it is copied to the workspace first). Not recorded by autograd.
// Steps: barrier, read W x n, barrier. Bytes read per rank: W x n x itemsize.
// UsageError: premul_sum, wrong dtype, not contiguous, a backend whose memory the host cannot read.
Tensor one_shot_all_reduce(const Tensor& input, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

}  // namespace tutti::comm::symm
