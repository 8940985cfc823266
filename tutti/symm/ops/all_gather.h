// all_gather: every rank reads every other's tensor.
#pragma once

#include "tutti/symm/group.h"
#include "tutti/symm/ops/op_call.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// The tensors of all ranks in rank order. Shapes: [m, ...], the same on all ranks, contiguous -> [W x m, ...]; 0-dim ->
// [W]. Any dtype. The input must be in symmetric memory on all ranks or on none. Steps: barrier, read W x n elements,
// barrier. UsageError on all ranks when their calls differ.
Tensor all_gather(const Tensor& input, const SymmGroup& group);

// The same as part of another op's call, whose arguments have been checked.
Tensor gather(OpCall& call, const Tensor& input);
// The same into a dense `output`.
void gather_into(OpCall& call, const Tensor& output, const Tensor& input);

}  // namespace tutti::comm::symm
