// Lines: the elements of a tensor along one dim, for kernels that need a line as a whole.
#pragma once

#include <algorithm>

#include "tutti/ops/engine/eager.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/tensor/tensor.h"

namespace tutti::facets {

// Element offset of line `line` of `t` along `dim`; lines are numbered row-major over the other dims.
inline int64_t line_offset(const Tensor& t, int dim, int64_t line) {
  int64_t offset = 0;
  for (int d = t.ndim() - 1; d >= 0; --d) {
    if (d == dim) continue;
    const size_t k = static_cast<size_t>(d);
    offset += line % t.extents()[k] * t.strides()[k];
    line /= t.extents()[k];
  }
  return offset;
}

// Calls body(begin, end) on ranges of the lines of `t` along `dim`, in parallel when there is much to do.
template <class Body>
void for_each_line(const Tensor& t, int dim, Body body) {
  const int64_t length = t.ndim() == 0 ? 1 : t.extents()[static_cast<size_t>(dim)];
  if (t.numel() == 0) return;
  ThreadPool::current().parallel_for(t.numel() / length, std::max<int64_t>(kParallelGrain / 8 / length, 1), body);
}

}  // namespace tutti::facets
