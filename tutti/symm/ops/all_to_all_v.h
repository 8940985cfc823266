// all_to_all of rows with uneven splits, which only the sender needs to know.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

struct AllToAllVResult {
  Tensor output;                       // [sum of output_splits, ...]: the rows from rank 0, then those from rank 1, ...
  std::vector<int64_t> output_splits;  // the number of rows from each rank
};

// Shapes: input [rows, ...] contiguous, input_splits W numbers >= 0 whose sum is rows; all dims but the first are the
// same on all ranks. Any dtype. Splits are exchanged through shared memory, so receivers need not know them in advance.
// UsageError when the splits are invalid, or, on all ranks, when the rows of different ranks differ in shape.
AllToAllVResult all_to_all_v(const Tensor& input, std::span<const int64_t> input_splits, const SymmGroup& group);

}  // namespace tutti::comm::symm
