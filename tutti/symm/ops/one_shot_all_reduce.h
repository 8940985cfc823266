// all_reduce in one pass: every rank reads all buffers and reduces them itself.
#pragma once

#include "tutti/core/reduce_op.h"
#include "tutti/symm/group.h"
#include "tutti/symm/ops/op_call.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Reduces over ranks in the halving tree (numerics contract, N4), which gives the same bits on every rank and with
// every algorithm. Shapes: the same on all ranks, contiguous -> the same. Dtypes: those of the reduction. The input is
// not written; it must be in symmetric memory on all ranks or on none (then it is first copied to the workspace). Not
// recorded by autograd. Steps: barrier, read W x n elements, barrier. Bytes read per rank: W x n x itemsize. UsageError
// on all ranks when their calls differ, or when any of them passes premul_sum, an unsupported dtype or a tensor that is
// not contiguous; UsageError for a backend whose memory the host cannot read.
Tensor one_shot_all_reduce(const Tensor& input, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

// The same as part of another op's call, whose arguments have been checked. `output` must not be the input.
void reduce_in_one_pass(OpCall& call, const Tensor& input, const Tensor& output);

}  // namespace tutti::comm::symm
