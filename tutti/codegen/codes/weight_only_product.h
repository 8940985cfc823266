// Products x W^T in which W alone is stored as codes, which are decoded to f32 as they are multiplied.
//
//   i8      w = the code; y = total * the scale of its row
//   4 bits  w = fma(code, scale, minimum) of its group; y = total
// The total is the sum of x * w in the tree of numerics contract N3, a chain of f32 in each leaf.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/codegen/codes/scaled_product.h"

namespace tutti::codegen {

struct WeightOnlyProduct {
  int64_t m, n, k;
  const void* x;  // [m, k], dense: f32, bf16 or f16
  DType x_dtype;
  const std::byte* w;              // i8 [n, k]; or two codes a byte [n, k / 2], the first of them in the low bits
  int64_t w_stride;                // bytes between rows
  bool has_nibbles = false;        // whether codes have 4 bits
  int64_t group = 0;               // elements of a group of theirs, a multiple of 8
  Scales scale;                    // of a row; of groups: [n, k / group], dense
  const float* minimum = nullptr;  // [n, k / group], dense
  void* y;                         // [m, n], dense: f32, bf16 or f16
  DType y_dtype;
};

void weight_only_product(const WeightOnlyProduct& product, ThreadPool& pool);

}  // namespace tutti::codegen
