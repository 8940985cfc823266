// What decoded_gemm() asks its decoder for.
#pragma once

#include <cstdint>

namespace tutti::codegen {

// A part of B that is asked for: to[p * width + j] becomes element (first_k + p, first_column + j), for p < length and
// j < columns. The columns from there to `width`, a multiple of 8, exist in memory only and may become anything.
struct GemmDecodedBlock {
  int64_t first_k, length, first_column, columns;
  float* to;
  int64_t width;
};

}  // namespace tutti::codegen
