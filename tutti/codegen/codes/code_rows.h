// The rows of x in a product of codes, as its kernels read them: words of 16 bits or decoded numbers.
#pragma once

#include <cstdint>

#include "tutti/codegen/codes/scaled_product.h"
#include "tutti/codegen/gemm/workspace.h"

namespace tutti::codegen {

struct CodeRows {
  int64_t stride = 0;              // between rows, in elements
  const int16_t* words = nullptr;  // of integers: codes less the zero point, and a 0 where k is odd
  const float* values = nullptr;   // of f8e4m3fn
  const float* scales = nullptr;   // of each row
};

// Rows first to first + count, in memory of `memory`.
CodeRows code_rows(const ScaledProduct& product, int64_t first, int64_t count, Workspace& memory, ThreadPool& pool);

}  // namespace tutti::codegen
