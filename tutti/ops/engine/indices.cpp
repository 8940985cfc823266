#include "tutti/ops/engine/indices.h"

#include <algorithm>
#include <cstring>

#include "tutti/ops/engine/eager.h"
#include "tutti/runtime/thread_pool.h"

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

void copy_rows(const Tensor& out, const Tensor& x, int dim, const std::vector<int64_t>& rows) {
  const Tensor source = to_contiguous(x);
  int64_t outer = 1, block = itemsize(x.dtype());
  for (int d = 0; d < dim; ++d) outer *= x.extents()[static_cast<size_t>(d)];
  for (int d = dim + 1; d < x.ndim(); ++d) block *= x.extents()[static_cast<size_t>(d)];
  const int64_t count = static_cast<int64_t>(rows.size()), size = x.extents()[static_cast<size_t>(dim)];
  const char* from = static_cast<const char*>(source.raw_data());
  char* to = static_cast<char*>(out.raw_data());
  const int64_t grain = std::max<int64_t>(4 * kParallelGrain / std::max<int64_t>(block, 1), 1);  // bytes, not elements
  ThreadPool::current().parallel_for(outer * count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = r / count * size + rows[static_cast<size_t>(r % count)];
      std::memcpy(to + r * block, from + row * block, static_cast<size_t>(block));
    }
  });
}

}  // namespace tutti::facets
