// Products x W^T in which W stays as blocks of quantized numbers.
//
// The rows of x are quantized (activation_rows.h); the integers of a block of W and of x are multiplied and added
// exactly, converted to f32 once, and added to a chain (numerics contract, N12). With d the scale of a block of W, m
// its minimum (dmin for Q4_K and Q5_K) and e the scale of the block of x, all of f32, a chain takes for each block
//   sum = fma(d * e, products, sum)
//   sum = fma(m * e, codes of x, sum)               Q4_1 and Q5_1
//   sum = fma(-(m * e), minima times codes, sum)    Q4_K and Q5_K
// A leaf of the tree is at most kBlockLeaf blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/core/block_format.h"
#include "tutti/core/dtype.h"

namespace tutti {
class ThreadPool;
}

namespace tutti::codegen {

inline constexpr int32_t kBlockLeaf = 8;

// The instructions that products use here, by the name of their CpuTarget: avx512vnni or avx2.
std::string_view instructions_of_blocks();

// Whether block_product() takes weights of the format: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K.
bool can_multiply(BlockFormat format);

struct BlockProduct {
  BlockFormat format;
  int64_t m, n, k;  // k is a whole number of blocks
  const void* x;    // [m, k], dense, of x_dtype: f32, bf16 or f16
  DType x_dtype;
  const std::byte* w;  // [n, bytes of a row], rows `w_stride` bytes apart; no alignment is needed
  int64_t w_stride;
  void* y;  // [m, n], dense, of y_dtype: f32, bf16 or f16
  DType y_dtype;
};

// The bits depend on nothing but the rows of x and W that an element has. UsageError for a format that is not
// multiplied.
void block_product(const BlockProduct& product, ThreadPool& pool);
// Several products of one x, whose rows are quantized once. Their formats may differ, but for the elements of a block:
// m, k, x and its dtype are those of the first. Each has the bits that it has alone.
void block_products(std::span<const BlockProduct> products, ThreadPool& pool);

}  // namespace tutti::codegen
