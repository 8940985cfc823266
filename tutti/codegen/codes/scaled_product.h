// Products x W^T of 8-bit codes, for one W or for several that share x.
//
// With codes c and zero point z of x, codes w of W, and scales sx of the row and sw of the column, all of f32:
//   i8         total = the exact sum of (c - z) * w, converted to f32 once
//   f8e4m3fn   total = the sum of c * w, decoded, in the tree of numerics contract N3
//   y = total * (sx * sw) + bias, rounded after each operation, then to the dtype of y
// or, where y are codes of scale so and zero point zo, the code of y * (1 / so) (code_type.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/core/dtype.h"

namespace tutti {
class ThreadPool;
}

namespace tutti::codegen {

// Columns of an integer product beyond which its sum might not fit 32 bits.
inline constexpr int64_t kMostIntegerTerms = 65793;

// A number for each of several, or one for all (stride 0).
struct Scales {
  const float* data = nullptr;
  int64_t stride = 0;
  float operator[](int64_t i) const { return data[i * stride]; }
};

struct ScaledWeights {
  int64_t n;
  const std::byte* w;  // codes [n, k], rows `w_stride` bytes apart
  int64_t w_stride;
  Scales scale;
  const float* bias = nullptr;  // [n]; null: none
  void* y;                      // [m, n], dense
  float y_scale = 1;            // where y are codes
  int32_t y_zero_point = 0;
};

struct ScaledProduct {
  int64_t m, k;
  DType codes;    // of W: i8 or f8e4m3fn
  const void* x;  // [m, k], dense: codes, or f32, bf16 or f16 that are rounded to codes first
  DType x_dtype;
  DType x_codes;   // those, or the type of the codes in x: i8 or u8 with i8, f8e4m3fn with f8e4m3fn
  Scales x_scale;  // null: found for each row of numbers (code_scale), with zero point 0
  int32_t x_zero_point = 0;
  DType y_dtype;  // f32, bf16, f16 or codes
  std::span<const ScaledWeights> weights;
};

// The bits depend on nothing but the row of x and the row of W that an element has.
void scaled_product(const ScaledProduct& product, ThreadPool& pool);

}  // namespace tutti::codegen
