// Decoding of blocks of quantized numbers to f32, and their encoding.
//
// The layouts are ggml's. All products of a decoded element are exact in f32, so at most one operation of each rounds:
// every implementation gives the same bits. Scales that are infinite or NaN decode as IEEE arithmetic says.
// Source: dequantize_row_* and quantize_row_*_ref of ggml-quants.c (ggml-org/ggml).
#pragma once

#include <cstddef>
#include <span>

#include "tutti/core/block_format.h"

namespace tutti {

// Whether decode_blocks() and encode_blocks() take the format, each: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K
// Q6_K.
bool can_decode(BlockFormat format);
bool can_encode(BlockFormat format);

// Decodes whole blocks. UsageError for a format that is not decoded here, and unless `values` has the elements of
// `blocks`. The bytes need no alignment.
void decode_blocks(BlockFormat format, std::span<const std::byte> blocks, std::span<float> values);

// Encodes whole blocks. Narrow floats round to nearest even; quantized blocks are those of ggml's reference functions
// (block_encode.h). UsageError for a format that is not encoded here, sizes that differ, and for quantized formats an
// element that is not finite, and blocks whose elements are so large that their scales exceed f16: magnitudes from
// 65520 on in Q4_1 and Q5_1, from 524 thousand in Q4_0, more in the others.
void encode_blocks(BlockFormat format, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace tutti
