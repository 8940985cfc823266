#include "tutti/ops/indexing/row_runs.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/ops/indexing/radix_sort.h"

namespace tutti::facets {
namespace {

// The keys of the entries that are not left out; returns how many there are.
template <class Index>
int64_t write_keys(const Tensor& indices, int64_t first, int64_t rows, int64_t skipped, int entry_bits,
                   uint64_t* keys) {
  const Index* values = static_cast<const Index*>(indices.raw_data());
  const auto is_taken = [&](int64_t value) {
    return value != skipped && static_cast<uint64_t>(value - first) < static_cast<uint64_t>(rows);
  };
  const EntryChunks chunks(indices.numel());
  std::vector<int64_t> starts(static_cast<size_t>(chunks.count) + 1);
  if (chunks.count > 1) {
    chunks.each([&](size_t c, int64_t begin, int64_t end) {
      int64_t taken = 0;
      for (int64_t e = begin; e < end; ++e) taken += is_taken(static_cast<int64_t>(values[e]));
      starts[c + 1] = taken;
    });
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
  }
  int64_t n = 0;
  chunks.each([&](size_t c, int64_t begin, int64_t end) {
    int64_t at = starts[c];
    const int64_t behind = c + 1 < static_cast<size_t>(chunks.count) ? starts[c + 1] : indices.numel();
    for (int64_t e = begin; e < end; ++e) {
      const int64_t value = static_cast<int64_t>(values[e]);
      // Written before it is known whether it stays, but not where the next chunk begins.
      if (at < behind) keys[at] = static_cast<uint64_t>(value - first) << entry_bits | static_cast<uint64_t>(e);
      at += is_taken(value);
    }
    if (c + 1 == static_cast<size_t>(chunks.count)) n = at;
  });
  return n;
}

// starts[i] becomes the place where run i begins; returns the number of runs.
int64_t write_starts(const uint64_t* sorted, int64_t n, int entry_bits, int64_t* starts) {
  const auto begins = [&](int64_t i) { return i == 0 || sorted[i] >> entry_bits != sorted[i - 1] >> entry_bits; };
  const EntryChunks chunks(n);
  std::vector<int64_t> firsts(static_cast<size_t>(chunks.count) + 1);
  if (chunks.count > 1) {
    chunks.each([&](size_t c, int64_t begin, int64_t end) {
      int64_t runs = 0;
      for (int64_t i = begin; i < end; ++i) runs += begins(i);
      firsts[c + 1] = runs;
    });
    std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
  }
  int64_t count = 0;
  chunks.each([&](size_t c, int64_t begin, int64_t end) {
    int64_t run = firsts[c];
    const int64_t behind = c + 1 < static_cast<size_t>(chunks.count) ? firsts[c + 1] : n;
    for (int64_t i = begin; i < end; ++i) {
      if (run < behind) starts[run] = i;  // as the keys are
      run += begins(i);
    }
    if (c + 1 == static_cast<size_t>(chunks.count)) count = run;
  });
  return count;
}

}  // namespace

RowRuns::RowRuns(const Tensor& indices, int64_t rows, int64_t skipped, int64_t first) {
  const Tensor dense = to_contiguous(indices);
  const int64_t entries = dense.numel();
  entry_bits_ = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(entries - 1, 1))));
  entry_mask_ = (uint64_t{1} << entry_bits_) - 1;
  const int row_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(rows - 1, 1))));
  TUTTI_CHECK(row_bits + entry_bits_ <= 64,
              "the gradient of {} lookups in {} rows: {} + {} bits number a row and an entry, 64 are "
              "there; look up in several calls",
              entries, rows, row_bits, entry_bits_);
  // Memory of the allocator, which keeps it from call to call.
  keys_ = Tensor::empty({entries}, DType::i64);
  const Tensor other = Tensor::empty({entries}, DType::i64);
  uint64_t* mine = reinterpret_cast<uint64_t*>(keys_.data<int64_t>());
  const int64_t n = dense.dtype() == DType::i64 ? write_keys<int64_t>(dense, first, rows, skipped, entry_bits_, mine)
                                                : write_keys<int32_t>(dense, first, rows, skipped, entry_bits_, mine);
  if (sort_bits(mine, reinterpret_cast<uint64_t*>(other.data<int64_t>()), n, entry_bits_, entry_bits_ + row_bits) !=
      mine)
    keys_ = other;

  sorted_ = reinterpret_cast<const uint64_t*>(keys_.data<int64_t>());
  starts_ = Tensor::empty({n + 1}, DType::i64);
  int64_t* starts = starts_.data<int64_t>();
  begin_ = starts;
  count_ = write_starts(sorted_, n, entry_bits_, starts);
  starts[count_] = n;
}

int64_t RowRuns::find(int64_t row) const {
  int64_t low = 0, high = count_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (this->row(middle) < row) low = middle + 1;
    else high = middle;
  }
  return low;
}

}  // namespace tutti::facets
