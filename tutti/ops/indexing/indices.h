// Index operands: reading them in any strides and refusing those that are out of range.
#pragma once

#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::facets {

// The elements of an i64 or i32 tensor in row-major order.
std::vector<int64_t> dense_indices(const Tensor& index);

// UsageError when `index` is neither i64 nor i32.
void check_index_dtype(const char* op, const Tensor& index);

// UsageError naming the first element outside [0, size), its position, and the range. `what` says what is indexed,
// e.g. "rows of weight [5, 3] f32 cpu".
void check_index_range(const char* op, const Tensor& index, int64_t size, const std::string& what);

// "legal: 0 to 4" for 5; of none there is none.
std::string legal_indices(int64_t count);

}  // namespace tutti::facets
