// LinesAhead: asks memory for what is packed next, line after line in the order of memory. Rows that are read side by
// side, each a few bytes at a time, come at half the rate or less when they are left to the processor's own
// prefetchers.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tutti::codegen {

class LinesAhead {
 public:
  // `bytes` of each of the rows from `first` on, counted from `base`, `row_stride` bytes apart. There need not be any:
  // a place outside of memory is asked for in vain.
  LinesAhead(const void* base, int64_t first, int64_t rows, int64_t row_stride, int64_t bytes)
      : row_stride_(row_stride),
        bytes_(bytes),
        row_(reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(first * row_stride)),
        end_(row_ + static_cast<uintptr_t>(rows * row_stride)) {}

  // Asks for so many more lines of them.
  void ask(int64_t lines) {
    if (row_ != end_ && offset_ + lines * kLine < bytes_) {
      for (int64_t i = 0; i < lines; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(row_) + offset_ + i * kLine, _MM_HINT_T0);
      offset_ += lines * kLine;
      return;
    }
    for (; lines > 0 && row_ != end_; --lines) {
      _mm_prefetch(reinterpret_cast<const char*>(row_) + offset_, _MM_HINT_T0);
      offset_ += kLine;
      if (offset_ < bytes_) continue;
      offset_ = 0;
      row_ += static_cast<uintptr_t>(row_stride_);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const int64_t row_stride_, bytes_;
  uintptr_t row_, end_;
  int64_t offset_ = 0;  // in the row
};

// A panel of `width` rows is packed from its end in groups of `side` rows: the group after that of row j, and after the
// first group the last one of the next panel.
inline int64_t next_group(int64_t width, int64_t side, int64_t j) {
  return j > 0 ? j - side : width + (width - 1) / side * side;
}

}  // namespace tutti::codegen
