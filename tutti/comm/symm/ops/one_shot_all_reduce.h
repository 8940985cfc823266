// all_reduce in one pass: every rank reads all buffers and reduces them itself.
#pragma once

#include "tutti/comm/reduce_op.h"
#include "tutti/comm/symm/group.h"
#include "tutti/comm/symm/ops/op_call.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Reduces over ranks in the halving tree (numerics contract, N4): the same bits on every rank, for every algorithm.
// Shapes: the same on all ranks, contiguous -> the same. Dtypes: what the reduction takes. The input is not written; it
// lies in symmetric memory on all ranks or on none (then it is copied to the workspace first). Not recorded by autograd.
// Steps: meet, read W x n, meet. Bytes read per rank: W x n x itemsize.
// UsageError on all ranks: the ranks' calls differ, or one of them gives premul_sum, a wrong dtype or what is not
// contiguous. UsageError: a backend whose memory the host cannot read.
Tensor one_shot_all_reduce(const Tensor& input, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

// The same as a part of a call that has been described. `output` is not the input.
void reduce_in_one_pass(OpCall& call, const Tensor& input, const Tensor& output);

}  // namespace tutti::comm::symm
