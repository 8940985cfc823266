// all_reduce in two passes: every rank reduces its share of the elements and writes it to all ranks.
#pragma once

#include "tutti/comm/reduce_op.h"
#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// In place, with the bits of one_shot_all_reduce(). Shapes: the same on all ranks, contiguous; any number of elements and
// ranks. The tensor lies in symmetric memory on all ranks or on none (then it goes through the workspace).
// Steps: meet, reduce n / W, write W x n / W, meet. Bytes read and written per rank: 2 x n x itemsize.
// UsageError on all ranks as of one_shot_all_reduce().
void two_shot_all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

// Either algorithm, by the tuning table (tuning.h), whose choice must be the same on all ranks. In place.
void all_reduce(const Tensor& tensor, const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

}  // namespace tutti::comm::symm
