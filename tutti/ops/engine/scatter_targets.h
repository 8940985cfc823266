// What scatter and scatter_add share: attributes, checks and the walk over targets.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/op_def.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {

struct ScatterAttrs {
  int64_t dim;
};
inline size_t scatter_dim(const Attrs& attrs) { return static_cast<size_t>(attrs.as<ScatterAttrs>().dim); }

// Inputs are x, index, source.
void infer_scatter(const OpCall& call, OutputMetas& out);
void check_scatter_indices(const OpCall& call);
// `classes`: the partial rows.
std::string scatter_sharding(const OpCall& call, const char* classes);

// Elements from the start of `t` to each index of its dims [begin, end), row-major over `sizes`.
std::vector<int64_t> scatter_offsets(const Extents& sizes, const Tensor& t, size_t begin, size_t end);

// Calls put(target element, source element) for every element of source: for each target in ascending order of the
// index's position along `dim`. Threads share out the dims beside it, so no two of them meet in a target.
template <class Index, class Put>
void for_each_target(const Tensor& out, size_t dim, const Tensor& index, const Tensor& source, Put put) {
  const Extents& sizes = index.extents();
  if (index.numel() == 0) return;
  const size_t n = sizes.size();
  const auto out_outer = scatter_offsets(sizes, out, 0, dim), out_inner = scatter_offsets(sizes, out, dim + 1, n);
  const auto index_outer = scatter_offsets(sizes, index, 0, dim), index_inner = scatter_offsets(sizes, index, dim + 1, n);
  const auto source_outer = scatter_offsets(sizes, source, 0, dim), source_inner = scatter_offsets(sizes, source, dim + 1, n);
  const int64_t step = out.strides()[dim], index_step = index.strides()[dim], source_step = source.strides()[dim];
  const Index* picks = static_cast<const Index*>(index.raw_data());
  const int64_t inner = static_cast<int64_t>(out_inner.size()), lines = static_cast<int64_t>(out_outer.size()) * inner;
  ThreadPool::current().parallel_for(
      lines, std::max<int64_t>(kParallelGrain / sizes[dim], 1), [&](int64_t begin, int64_t end) {
        while (begin < end) {  // the lines [begin, stop) of one outer index
          const size_t o = static_cast<size_t>(begin / inner);
          const int64_t stop = std::min(end, (begin / inner + 1) * inner), first = begin % inner;
          for (int64_t j = 0; j < sizes[dim]; ++j) {
            for (int64_t i = first; i < first + (stop - begin); ++i) {
              const size_t k = static_cast<size_t>(i);
              const int64_t pick = picks[index_outer[o] + j * index_step + index_inner[k]];
              put(out_outer[o] + pick * step + out_inner[k], source_outer[o] + j * source_step + source_inner[k]);
            }
          }
          begin = stop;
        }
      });
}

template <class Put>
void for_each_target(const OpCall& call, const Tensor& out, Put put) {
  const size_t dim = scatter_dim(call.attrs);
  if (call[1].dtype() == DType::i64) for_each_target<int64_t>(out, dim, call[1], call[2], put);
  else for_each_target<int32_t>(out, dim, call[1], call[2], put);
}

}  // namespace tutti::facets
