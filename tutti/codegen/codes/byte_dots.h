// Dot products of rows of i8 with rows of bytes on dot units (VPDPBUSD), as they lie in memory. The sums are exact
// modulo 2^32 in any order. Private to the products of codes.
#pragma once

#include <cstdint>

namespace tutti::codegen::codes {

// Rows of i8 that are multiplied together: their results fill a register of 512 bits.
inline constexpr int64_t kDotColumns = 16;

// Bytes that are larger by `offset` than the numbers they stand for, and may be read up to a multiple of 64.
struct ByteRows {
  const uint8_t* bytes;
  int64_t stride;
  int64_t count;
  int32_t offset;
};
// An odd number of lines: rows whose distance is a power of two would push each other out of the first cache.
inline int64_t padded_bytes(int64_t k) { return ((k + 63) / 64 | 1) * 64; }

// Rows of i8, `stride` bytes apart, up to kDotColumns of them.
struct DotColumns {
  const uint8_t* first;
  int64_t stride;
  int64_t columns;
  int64_t k;
};

// sums[i * kDotColumns + j]: that of row i of x and column j, for processors of CpuTarget::avx512vnni.
void dot_bytes(const DotColumns& w, const ByteRows& x, int32_t* sums);

}  // namespace tutti::codegen::codes
