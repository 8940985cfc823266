// all_gather: every rank reads every other's tensor.
#pragma once

#include "tutti/comm/symm/group.h"
#include "tutti/comm/symm/ops/op_call.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Shapes: [m, ...], the same on all ranks, contiguous -> [W x m, ...] in rank order; 0-dim -> [W]. Any dtype. The input
// lies in symmetric memory on all ranks or on none. Steps: meet, read W x n, meet.
// UsageError on all ranks: the ranks' calls differ.
Tensor all_gather(const Tensor& input, const SymmGroup& group);

// The same as a part of a call that has been described.
Tensor gather(OpCall& call, const Tensor& input);

}  // namespace tutti::comm::symm
