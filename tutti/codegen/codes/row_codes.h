// Rows of numbers as 8-bit codes with one scale each, as a cache of keys and values holds them.
//
// With the largest magnitude a of a row, all in f32:
//   i8        d = a / 127, codes from -127 to 127
//   f8e4m3fn  d = a / 448, codes of at most that magnitude
// A code is x * (1 / d), rounded to nearest even; the number that it stands for is the code times d, rounded once. A
// row whose d would not be a normal number (zeros, or magnitudes below 1.5e-36 and 5.3e-36) is zero with d = 0; one
// with an element that is not finite has codes 0 and d = NaN. Bits depend on the row alone, not on the instruction set.
#pragma once

#include <cstdint>

#include "tutti/core/dtype.h"

namespace tutti::codegen {

// The dtypes that codes have, and those of rows.
constexpr bool is_row_code(DType dtype) { return dtype == DType::i8 || dtype == DType::f8e4m3fn; }
constexpr bool has_row_codes(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

// Writes the codes of a dense row of n elements; returns its scale.
float quantize_row(const void* x, DType dtype, int64_t n, DType code, void* codes);

// decoded[r * n + i] = code i of row r, whose codes begin r * stride bytes behind those of row 0, times scale
// r * scale_stride. Up to kPackSlack elements behind the last row are written.
void decode_rows(const void* codes, DType code, int64_t stride, const float* scales, int64_t scale_stride, int64_t rows,
                 int64_t n, float* decoded);

}  // namespace tutti::codegen
