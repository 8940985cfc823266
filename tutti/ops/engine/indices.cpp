#include "tutti/ops/engine/indices.h"

#include "tutti/core/error.h"

namespace tutti::facets {

std::vector<int64_t> dense_indices(const Tensor& index) {
  const Tensor dense = to_contiguous(index);
  if (dense.dtype() == DType::i64) {
    const int64_t* data = dense.data<int64_t>();
    return {data, data + dense.numel()};
  }
  const int32_t* data = dense.data<int32_t>();
  return {data, data + dense.numel()};
}

void check_index_dtype(const char* op, const Tensor& index) {
  TUTTI_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32,
              "{}: the indices are {}; expected i64 or i32", op, describe(index));
}

void check_index_range(const char* op, const Tensor& index, int64_t size, const std::string& what) {
  Extents distinct = index.extents();  // a repeated element is looked at once
  for (size_t d = 0; d < distinct.size(); ++d) {
    if (index.strides()[d] == 0 && distinct[d] > 1) distinct[d] = 1;
  }
  const std::vector<int64_t> values = dense_indices(index.view_as(distinct, index.strides(), index.offset()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < size) [[likely]] continue;
    Extents at = distinct;
    int64_t rest = static_cast<int64_t>(i);
    for (int d = at.ndim() - 1; d >= 0; --d) {
      const int64_t extent = at[static_cast<size_t>(d)];
      at[static_cast<size_t>(d)] = rest % extent;
      rest /= extent;
    }
    throw UsageError(fmt::format("{}: index {} at position {} is out of range for {} {}; legal: 0 to {}", op, values[i],
                                 at, size, what, size - 1));
  }
}

}  // namespace tutti::facets
