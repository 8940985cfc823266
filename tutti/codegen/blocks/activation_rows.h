// The activations of a product with block-quantized weights, as 8-bit codes that share scales.
//
// A block is 32 or 256 neighbouring elements of a row: Q8_0 and Q8_1 in the former case, Q8_K in the latter. Its scale
// is positive and stays f32, where ggml's blocks of 32 hold an f16: nothing is written to a file, and an f16 scale
// would lose small activations and overflow for large ones. The sign that ggml gives the scale of Q8_K cancels in
// products.
#pragma once

#include <cstdint>

#include "tutti/codegen/gemm/workspace.h"
#include "tutti/core/dtype.h"

namespace tutti {
class ThreadPool;
}

namespace tutti::codegen {

inline constexpr int64_t kSmallBlock = 32, kSuperBlock = 256;
inline constexpr int64_t kElementsOfSum = 16;

// g rows that are multiplied together stand together, so that they are read in the order of memory:
//   codes   [k / 4][g][4]       from -127 to 127
//   scales  [k / block][g]      an element is its code times the scale
//   sums    [k / 32][g][2]      of the codes of 16 neighbours
// Rows of zeros fill up the last g.
struct ActivationRows {
  int64_t rows = 0, k = 0;
  int64_t block = kSmallBlock;
  int64_t together = 1;  // g
  int8_t* codes = nullptr;
  float* scales = nullptr;
  int16_t* sums = nullptr;

  // They begin with `row`, the first of rows that stand together, and go on from a block of these.
  int8_t* codes_of(int64_t row, int64_t first_block) const { return codes + row * k + first_block * block * together; }
  float* scales_of(int64_t row, int64_t first_block) const {
    return scales + row * (k / block) + first_block * together;
  }
  int16_t* sums_of(int64_t row, int64_t first_block) const {
    return sums + (row * k + first_block * block * together) / kElementsOfSum;
  }
};

// Quantizes `rows` dense rows of k elements of f32, bf16 or f16; k is a multiple of `block`. With the largest magnitude
// a of a block, all in f32:
//   blocks of 32   d = a / 127, inverse = 1 / d
//   blocks of 256  inverse = 127 / a, d = 1 / inverse
// A code is x * inverse, rounded to nearest even. A block whose d would not be a normal number (zeros, or magnitudes
// below 1.5e-36) is zero with d = 0; one with an element that is not finite has codes 0 and d = NaN.
ActivationRows quantize_rows(const void* x, DType dtype, int64_t rows, int64_t k, int64_t block, int64_t together,
                             Workspace& memory, ThreadPool& pool);

}  // namespace tutti::codegen
