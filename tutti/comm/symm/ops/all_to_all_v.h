// all_to_all of rows with uneven splits that only the sender knows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

struct AllToAllVResult {
  Tensor output;                       // [sum of output_splits, ...]: the rows from rank 0, then those from rank 1, ...
  std::vector<int64_t> output_splits;  // rows that came from each rank
};

// Shapes: input [rows, ...] contiguous, input_splits W numbers >= 0 whose sum is rows; the dims behind the first are the
// same on all ranks, which need not have equally many rows. Any dtype. Nobody tells the receivers in advance: splits are
// exchanged in shared memory. UsageError: splits do not fit; rows of different ranks differ in size (on all ranks).
AllToAllVResult all_to_all_v(const Tensor& input, std::span<const int64_t> input_splits, const SymmGroup& group);

}  // namespace tutti::comm::symm
