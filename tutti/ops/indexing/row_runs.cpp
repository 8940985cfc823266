#include "tutti/ops/indexing/row_runs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "tutti/core/error.h"

namespace tutti::facets {
namespace {

constexpr int kDigitBits = 10;  // 1024 places to write to: the lines at their ends stay in the first-level cache

// Sorts `keys` by the bits [low, high), lowest digit first, each pass stable. Returns which of the two has the result.
uint64_t* sort_bits(uint64_t* keys, uint64_t* other, int64_t n, int low, int high) {
  const int passes = (high - low + kDigitBits - 1) / kDigitBits;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = low + (high - low) * pass / passes, width = low + (high - low) * (pass + 1) / passes - shift;
    const uint64_t mask = (uint64_t{1} << width) - 1;
    std::array<int64_t, (1 << kDigitBits) + 1> place{};
    for (int64_t i = 0; i < n; ++i) ++place[(keys[i] >> shift & mask) + 1];
    for (size_t digit = 1; digit < place.size(); ++digit) place[digit] += place[digit - 1];
    for (int64_t i = 0; i < n; ++i) other[place[keys[i] >> shift & mask]++] = keys[i];
    std::swap(keys, other);
  }
  return keys;
}

template <class Index>
int64_t write_keys(const Tensor& indices, int64_t first, int64_t rows, int64_t skipped, int entry_bits,
                   uint64_t* keys) {
  const Index* values = static_cast<const Index*>(indices.raw_data());
  int64_t n = 0;
  for (int64_t e = 0; e < indices.numel(); ++e) {
    const int64_t value = static_cast<int64_t>(values[e]);
    const auto row = static_cast<uint64_t>(value - first);
    keys[n] = row << entry_bits | static_cast<uint64_t>(e);
    n += value != skipped && row < static_cast<uint64_t>(rows);
  }
  return n;
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
  const uint64_t* sorted = sorted_;
  uint64_t previous = ~uint64_t{0};  // of no row: rows and entries have 64 bits together, a row alone has fewer
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t row = sorted[i] >> entry_bits_;
    starts[count_] = i;
    count_ += row != previous;
    previous = row;
  }
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
