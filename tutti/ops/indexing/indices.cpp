#include "tutti/ops/indexing/indices.h"

#include <atomic>

#include "tutti/core/error.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

// Whether all of them are in [0, size).
template <class Index>
bool are_in_range(const Index* values, int64_t n, int64_t size) {
  // The sign of v or of size - 1 - v tells; no branch, so that vectors are looked at.
  const uint64_t last = static_cast<uint64_t>(size) - 1;
  uint64_t signs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t v = static_cast<uint64_t>(static_cast<int64_t>(values[i]));
    signs |= v | (last - v);
  }
  return signs >> 63 == 0;
}

bool are_in_range(const Tensor& dense, int64_t size) {
  std::atomic<bool> fit{true};
  ThreadPool::current().parallel_for(dense.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
    const bool mine = dense.dtype() == DType::i64 ? are_in_range(dense.data<int64_t>() + begin, end - begin, size)
                                                  : are_in_range(dense.data<int32_t>() + begin, end - begin, size);
    if (!mine) fit = false;
  });
  return fit;
}

}  // namespace

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
  TUTTI_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, "{}: the indices are {}; expected i64 or i32",
              op, describe(index));
}

void check_index_range(const char* op, const Tensor& index, int64_t size, const std::string& what) {
  Extents distinct = index.extents();  // a repeated element is looked at once
  for (size_t d = 0; d < distinct.size(); ++d) {
    if (index.strides()[d] == 0 && distinct[d] > 1) distinct[d] = 1;
  }
  const Tensor dense = to_contiguous(index.view_as(distinct, index.strides(), index.offset()));
  if (are_in_range(dense, size)) return;
  const std::vector<int64_t> values = dense_indices(dense);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < size) continue;
    Extents at = distinct;
    int64_t rest = static_cast<int64_t>(i);
    for (int d = at.ndim() - 1; d >= 0; --d) {
      const int64_t extent = at[static_cast<size_t>(d)];
      at[static_cast<size_t>(d)] = rest % extent;
      rest /= extent;
    }
    throw UsageError(fmt::format("{}: index {} at position {} is out of range for {} {}; {}", op, values[i], at, size,
                                 what, legal_indices(size)));
  }
}

std::string legal_indices(int64_t count) {
  return count > 0 ? fmt::format("legal: 0 to {}", count - 1) : "no index is legal where there is nothing";
}

}  // namespace tutti::facets
