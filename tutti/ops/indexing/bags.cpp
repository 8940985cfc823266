#include "tutti/ops/indexing/bags.h"

#include <algorithm>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

template <class Index>
bool all_in_range(const Tensor& indices, int64_t rows) {
  const Index* values = static_cast<const Index*>(indices.raw_data());
  uint64_t outside = 0;
  for (int64_t p = 0; p < indices.numel(); ++p)
    outside |=
        static_cast<uint64_t>(static_cast<uint64_t>(static_cast<int64_t>(values[p])) >= static_cast<uint64_t>(rows));
  return outside == 0;
}

}  // namespace

void check_bag_operands(const OpCall& call) {
  const Tensor &indices = call[1], &offsets = call[2];
  const BagAttrs& a = bag_attrs(call);
  check_index_dtype(call.op.name, indices);
  TUTTI_CHECK(call[0].ndim() == 2 && is_floating(call[0].dtype()),
              "{}: the first operand is {}; expected a matrix of floats", call.op.name, describe(call[0]));
  TUTTI_CHECK(indices.ndim() == 1, "{}: the indices are {}; expected one dim, the bags one after the other",
              call.op.name, describe(indices));
  TUTTI_CHECK(offsets.ndim() == 1 && (offsets.dtype() == DType::i64 || offsets.dtype() == DType::i32),
              "{}: the offsets are {}; expected one dim, i64 or i32", call.op.name, describe(offsets));
  TUTTI_CHECK(!a.include_last || offsets.size(0) > 0,
              "{}: include_last_offset needs at least one offset, the number of indices", call.op.name);
}

SymInt number_of_bags(const OpCall& call) { return call[2].size(0) - bag_attrs(call).include_last; }

void check_bags(const OpCall& call) {
  const BagAttrs& a = bag_attrs(call);
  const std::vector<int64_t> offsets = dense_indices(call[2]);
  const Tensor indices = to_contiguous(call[1]);
  const int64_t n = indices.numel(), count = static_cast<int64_t>(offsets.size());
  const auto offset = [&](int64_t b) { return offsets[static_cast<size_t>(b)]; };
  TUTTI_CHECK(count == 0 ? n == 0 : offset(0) == 0,
              "{}: {} indices in bags, but the first bag begins at offset {}; expected 0", call.op.name, n,
              count == 0 ? "(there is none)" : std::to_string(offset(0)));
  for (int64_t b = 1; b < count; ++b)
    TUTTI_CHECK(offset(b) >= offset(b - 1),
                "{}: bag {} begins at offset {}, before bag {} at {}; offsets must not fall", call.op.name, b,
                offset(b), b - 1, offset(b - 1));
  TUTTI_CHECK(count == 0 || offset(count - 1) <= n, "{}: {} at offset {}, beyond the {} indices", call.op.name,
              a.include_last ? "the last bag ends" : fmt::format("bag {} begins", count - 1), offset(count - 1), n);
  TUTTI_CHECK(!a.include_last || offset(count - 1) == n,
              "{}: with include_last_offset the last offset is the number of indices, {}; it is {}", call.op.name, n,
              offset(count - 1));
  if (indices.dtype() == DType::i64 ? all_in_range<int64_t>(indices, a.vocab) : all_in_range<int32_t>(indices, a.vocab))
      [[likely]]
    return;
  const std::vector<int64_t> borders = bag_borders(call), values = dense_indices(indices);
  for (size_t b = 0; b + 1 < borders.size(); ++b) {
    for (int64_t p = borders[b]; p < borders[b + 1]; ++p) {
      const int64_t index = values[static_cast<size_t>(p)];
      TUTTI_CHECK(index >= 0 && index < a.vocab,
                  "{}: index {} in bag {}, entry {} (position {} of the indices), is out of range for {} rows; {}",
                  call.op.name, index, b, p - borders[b], p, a.vocab, facets::legal_indices(a.vocab));
    }
  }
}

std::vector<int64_t> bag_borders(const OpCall& call) {
  std::vector<int64_t> borders = dense_indices(call[2]);
  if (!bag_attrs(call).include_last) borders.push_back(call[1].numel());
  return borders;
}

Tensor bag_of_entry(const std::vector<int64_t>& borders) {
  const Tensor bags = Tensor::empty({borders.back()}, DType::i64);
  int64_t* out = bags.data<int64_t>();
  for (size_t b = 0; b + 1 < borders.size(); ++b)
    std::fill(out + borders[b], out + borders[b + 1], static_cast<int64_t>(b));
  return bags;
}

Tensor dense_as(const Tensor& x, DType dtype) {
  const Tensor dense = to_contiguous(x);
  if (dense.dtype() == dtype) return dense;
  const Tensor result = Tensor::empty(dense.extents(), dtype);
  if (dense.dtype() == DType::i32 && dtype == DType::i64) {
    std::copy(dense.data<int32_t>(), dense.data<int32_t>() + dense.numel(), result.data<int64_t>());
    return result;
  }
  ThreadPool::current().parallel_for(result.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (is_floating(dtype)) write_double(result, i, read_double(dense, i));
      else write_int64(result, i, read_int64(dense, i));
    }
  });
  return result;
}

std::vector<int64_t> bag_lengths(const OpCall& call, const std::vector<int64_t>& borders) {
  const int64_t padding = bag_attrs(call).padding;
  std::vector<int64_t> lengths(borders.size() - 1);
  for (size_t b = 0; b < lengths.size(); ++b) lengths[b] = borders[b + 1] - borders[b];
  if (padding < 0) return lengths;
  const std::vector<int64_t> values = dense_indices(call[1]);
  for (size_t b = 0; b < lengths.size(); ++b)
    lengths[b] -= std::count(values.begin() + borders[b], values.begin() + borders[b + 1], padding);
  return lengths;
}

}  // namespace tutti::facets
