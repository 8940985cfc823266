// Tables whose rows are held in 8 or 4 bits, each with a scale and a minimum of its own: the formats of FBGEMM.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// How a row of D numbers lies in bytes. A number is scale * code + minimum, in one rounding; codes of 4 bits lie two in
// a byte, the first one in the low bits. FBGEMM's words: SB is scale and bias, the minimum.
enum class RowQuantization : uint8_t {
  fused_8bit_rowwise,               // D codes; scale and minimum, f32
  fused_4bit_rowwise_sbhalf,        // ceil(D / 2) bytes of codes; scale and minimum, f16
  fused_8bit_rowwise_sbhalf_front,  // scale and minimum, f16; D codes; zeros up to a multiple of 16 bytes
  fused_4bit_rowwise_sbhalf_front,  // scale and minimum, f16; ceil(D / 2) bytes of codes; zeros up to 16 bytes
};

// The bytes of a row of `columns` numbers.
int64_t quantized_row_nbytes(RowQuantization format, int64_t columns);

// The rows of `weight` [V, D] as u8 [V, quantized_row_nbytes(format, D)]. With everything in f32, halves rounded to
// even:
//   8 bits: scale = (max - min) / 255, code = round((x - min) * (255 / (max - min + 1e-8))). In front, scale and
//   minimum
//     are rounded to f16 after that.
//   4 bits: min is rounded to f16; scale = (max - min) / 15, rounded to f16, 1 where that or its inverse is no number;
//     code = round((x - min) * (1 / scale)), at least 0 and at most 15.
// The bytes are those of FBGEMM. Dtypes: f32, bf16, f16. UsageError for a row whose numbers, difference between
// largest and smallest, or scale and minimum in f16, are not finite. Source: FBGEMM's Fused8BitRowwise and
// FusedNBitRowwiseSBHalf.
Tensor quantize_rows(const Tensor& weight, RowQuantization format);

// The numbers of `rows` in f32 [V, columns]. UsageError for rows of other sizes.
Tensor dequantize_rows(const Tensor& rows, RowQuantization format, int64_t columns);

}  // namespace tutti
