// LinesAhead: asks memory for what is packed next, line after line in the order of memory. Rows that are read side by
// side, each a few bytes at a time, come at half the rate or less when they are left to the processor's own
// prefetchers.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tutti::codegen {

class LinesAhead {
 public:
  // `bytes` from each of `rows` rows. Nothing need be there: a place outside of memory is asked for in vain.
  LinesAhead(const void* first, int64_t row_stride, int64_t rows, int64_t bytes)
      : row_(reinterpret_cast<uintptr_t>(first)),
        row_stride_(row_stride),
        end_(row_ + static_cast<uintptr_t>(rows * row_stride)),
        bytes_(bytes) {}

  void ask(int64_t lines) {
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
  uintptr_t row_;
  int64_t row_stride_;
  uintptr_t end_;
  int64_t bytes_, offset_ = 0;
};

}  // namespace tutti::codegen
