// all_gather: every rank reads every other's tensor.
#pragma once

#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Shapes: [m, ...], the same on all ranks, contiguous -> [W x m, ...] in rank order; 0-dim -> [W]. Any dtype. The input
// lies in symmetric memory on all ranks or on none. Steps: barrier, read W x n, barrier.
Tensor all_gather(const Tensor& input, const SymmGroup& group);

}  // namespace tutti::comm::symm
