#include "tutti/ops/engine/loop_nest.h"

#include <algorithm>
#include <atomic>

#include "tutti/ops/engine/eager.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {

Extents broadcast_strides(const Tensor& t, const Extents& sizes) {
  Extents strides(sizes.size(), 0);
  const int shift = sizes.ndim() - t.ndim();
  for (int d = 0; d < t.ndim(); ++d) {
    if (t.extents()[d] != 1) strides[shift + d] = t.strides()[d];
  }
  return strides;
}

void LoopNest::add(const Tensor& t) {
  operands.push_back({static_cast<char*>(t.raw_data()), itemsize(t.dtype()), broadcast_strides(t, sizes)});
}

void LoopNest::erase(int dim) {
  sizes.erase(dim);
  logical.erase(dim);
  for (NestOperand& o : operands) o.strides.erase(dim);
}

void LoopNest::append_dim(int64_t size) {
  sizes.push_back(size);
  logical.push_back(0);
  for (NestOperand& o : operands) o.strides.push_back(0);
}

int LoopNest::drop_ones(int begin, int end) {
  for (int d = end - 1; d >= begin; --d) {
    if (sizes[d] != 1) continue;
    erase(d);
    --end;
  }
  return end;
}

int LoopNest::collapse(int begin, int end) {
  end = drop_ones(begin, end);
  for (int d = begin; d < end; ++d) {
    if (sizes[d] != 0) continue;
    // No element, so that no stride matters but for whether there is one: an operand that stays in place is read all
    // the same (class_of), and one that has no elements itself moves along one of these dims.
    for (NestOperand& o : operands) {
      const auto moves =
          std::find_if(o.strides.begin() + begin, o.strides.begin() + end, [](int64_t stride) { return stride != 0; });
      if (moves != o.strides.begin() + end) o.strides[begin] = *moves;
    }
    sizes[begin] = 0;
    while (end - begin > 1) erase(--end);
    return end;
  }
  for (int d = end - 2; d >= begin; --d) {
    const int64_t n = sizes[d + 1];
    bool even = logical[d] == logical[d + 1] * n;
    for (const NestOperand& o : operands) even = even && o.strides[d] == o.strides[d + 1] * n;
    if (!even) continue;
    sizes[d] *= n;
    logical[d] = logical[d + 1];
    for (NestOperand& o : operands) o.strides[d] = o.strides[d + 1];
    erase(d + 1);
    --end;
  }
  return end;
}

void LoopNest::permute(std::span<const int64_t> order) {
  const auto reorder = [&](Extents& values) {
    const Extents old = values;
    for (size_t i = 0; i < order.size(); ++i) values[i] = old[static_cast<size_t>(order[i])];
  };
  reorder(sizes);
  reorder(logical);
  for (NestOperand& o : operands) reorder(o.strides);
}

int64_t LoopNest::count(int begin, int end) const {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= sizes[d];
  return n;
}

codegen::StrideClass class_of(int64_t stride, int64_t size) {
  // A dim of size 0 keeps its class: an operand that stays in place is read even when there is no element.
  if (stride == 0 || size == 1) return stride == 1 ? codegen::StrideClass::contiguous : codegen::StrideClass::broadcast;
  return stride == 1 ? codegen::StrideClass::contiguous : codegen::StrideClass::strided;
}

namespace {

// Runs outer positions [begin, end) (row-major over dims [0, outer_end)) and inner elements [i0, i1).
void run_range(const LoopNest& nest, int outer_end, const KernelRun& run, int64_t begin, int64_t end, int64_t i0,
               int64_t i1, uint32_t* error, const MovedOperand* moved = nullptr) {
  const int64_t first = begin;
  const int last = outer_end - 1;  // the outer loop of the kernel
  const int64_t n_last = outer_end > 0 ? nest.sizes[last] : 1;
  codegen::OperandCall operands[kMaxNestOperands];
  while (begin < end) {
    const int64_t o = begin % n_last;
    const int64_t rows = std::min(n_last - o, end - begin);
    int64_t index = outer_end > 0 ? o * nest.logical[last] : 0;
    int64_t offsets[kMaxNestOperands];
    for (size_t k = 0; k < nest.operands.size(); ++k)
      offsets[k] = outer_end > 0 ? o * nest.operands[k].strides[last] : 0;
    int64_t rest = begin / n_last;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t at = rest % nest.sizes[d];
      rest /= nest.sizes[d];
      index += at * nest.logical[d];
      for (size_t k = 0; k < nest.operands.size(); ++k) offsets[k] += at * nest.operands[k].strides[d];
    }
    const int in = run.inner_dim, re = run.reduce_dim;
    for (size_t k = 0; k < nest.operands.size(); ++k) {
      const NestOperand& source = nest.operands[k];
      const int64_t inner = in >= 0 ? source.strides[in] : 0;
      const bool is_moved = moved && moved->operand == k;
      char* const start = is_moved ? moved->data : run.data ? run.data[k] : source.data;
      operands[k] = {.data = start + (offsets[k] + i0 * inner) * source.itemsize,
                     .outer = outer_end > 0 ? source.strides[last] : 0,
                     .inner = inner,
                     .reduce = re >= 0 ? source.strides[re] : 0,
                     .pick = source.pick,
                     .extent = source.extent};
      if (!is_moved) continue;
      operands[k].data = start + (begin - first) * moved->row_stride * source.itemsize;
      operands[k].outer = moved->row_stride;
      operands[k].inner = 1;
    }
    const codegen::KernelCall call{.operands = operands,
                                   .params = run.params,
                                   .n_outer = rows,
                                   .n_inner = i1 - i0,
                                   .n_reduce = run.n_reduce,
                                   .leaf = run.leaf,
                                   .first_index = index + (in >= 0 ? i0 * nest.logical[in] : 0),
                                   .index_outer = outer_end > 0 ? nest.logical[last] : 0,
                                   .error = error};
    run.entry(&call);
    begin += rows;
  }
}

// Elements of the inner loop to do at a time. Where an operand strides along the inner loop and is dense along the
// outer one, a narrow strip keeps its cache lines until the next rows have used them: 2048 x 2048 f32 transposed by
// clone took 33 ms in whole rows.
int64_t strip_width(const LoopNest& nest, int outer_end, const KernelRun& run) {
  constexpr int64_t kStrip = 32;
  if (!run.split_inner || outer_end == 0 || run.n_inner <= kStrip) return run.n_inner;
  for (const NestOperand& o : nest.operands) {
    const int64_t inner = o.strides[run.inner_dim], outer = o.strides[outer_end - 1];
    if (inner * o.itemsize >= 64 && outer != 0 && outer * o.itemsize < 64) return kStrip;
  }
  return run.n_inner;
}

// run_range in strips.
void run_strips(const LoopNest& nest, int outer_end, const KernelRun& run, int64_t begin, int64_t end, int64_t i0,
                int64_t i1, uint32_t* error) {
  const int64_t width = std::max<int64_t>(strip_width(nest, outer_end, run), 1);
  int64_t i = i0;
  do {  // once when there is no element: a row kernel writes what a row of none gives
    run_range(nest, outer_end, run, begin, end, i, std::min(i + width, i1), error);
    i += width;
  } while (i < i1);
}

}  // namespace

// Pieces of the inner loop of a kernel over columns, in blocks of 64 elements.
constexpr int64_t kLongPiece = 16;

uint32_t run_nest(const LoopNest& nest, int outer_end, const KernelRun& run) {
  TUTTI_ASSERT(nest.operands.size() <= kMaxNestOperands, "a kernel has {} operands", nest.operands.size());
  const int64_t outer = nest.count(0, outer_end);
  if (outer == 0) return 0;
  const int64_t work = std::max<int64_t>(run.n_inner, 1) * std::max<int64_t>(run.n_reduce, 1);
  if (outer * work < 2 * kParallelGrain) {
    uint32_t error = 0;
    run_strips(nest, outer_end, run, 0, outer, 0, run.n_inner, &error);
    return error;
  }
  std::atomic<uint32_t> errors{0};
  ThreadPool& pool = ThreadPool::current();
  const int64_t chains = outer / run.chain;
  if (run.split_inner && chains < 2 * pool.threads()) {
    // Few rows: cut the inner loop, at multiples of 64 elements so that every piece but the last holds whole vectors.
    const int64_t blocks = (run.n_inner + 63) / 64;
    const int64_t per_block = std::max<int64_t>(outer * std::max<int64_t>(run.n_reduce, 1) * 64, 1);
    // Reduced columns are read row by row: a piece of each row that is long, if there are enough for all threads.
    const int64_t long_piece = run.reduce_dim >= 0 ? std::min<int64_t>(kLongPiece, blocks / pool.threads()) : 1;
    pool.parallel_for(blocks, std::max({kParallelGrain / per_block, long_piece, int64_t{1}}),
                      [&](int64_t b, int64_t e) {
                        uint32_t error = 0;
                        run_strips(nest, outer_end, run, 0, outer, b * 64, std::min(e * 64, run.n_inner), &error);
                        if (error) errors |= error;
                      });
  } else {
    pool.parallel_for(chains, std::max<int64_t>(kParallelGrain / (work * run.chain), 1), [&](int64_t b, int64_t e) {
      uint32_t error = 0;
      run_strips(nest, outer_end, run, b * run.chain, e * run.chain, 0, run.n_inner, &error);
      if (error) errors |= error;
    });
  }
  return errors;
}

uint32_t run_nest_part(const LoopNest& nest, int outer_end, const KernelRun& run, const NestPart& part,
                       const MovedOperand* moved) {
  TUTTI_ASSERT(nest.operands.size() <= kMaxNestOperands, "a kernel has {} operands", nest.operands.size());
  uint32_t error = 0;
  if (moved) run_range(nest, outer_end, run, part.begin, part.end, part.inner_begin, part.inner_end, &error, moved);
  else run_strips(nest, outer_end, run, part.begin, part.end, part.inner_begin, part.inner_end, &error);
  return error;
}

}  // namespace tutti
