// The encoders behind encode_blocks() (block_codec.h). Each writes one block of its format from the elements of one.
//
// They write the bytes of ggml's reference functions without importance weights, quantize_row_*_ref of ggml-quants.c,
// compiled so that every operation on f32 is rounded by itself: no fused multiply-add, no other order of a sum. What
// ggml leaves to the processor, a conversion of a number that is no int8, has the result of x86.
// UsageError for elements that are not finite, and for blocks whose scales do not fit f16.
#pragma once

#include <cstddef>

#include "tutti/core/block_format.h"
#include "tutti/core/dtype.h"

namespace tutti {

// Blocks of 32 elements: block_encode.cpp.
void encode_q4_0(const float* values, std::byte* block);
void encode_q4_1(const float* values, std::byte* block);
void encode_q5_0(const float* values, std::byte* block);
void encode_q5_1(const float* values, std::byte* block);
void encode_q8_0(const float* values, std::byte* block);
// Blocks of 256 elements: block_encode_k.cpp and block_encode_q6_k.cpp.
void encode_q4_k(const float* values, std::byte* block);
void encode_q5_k(const float* values, std::byte* block);
void encode_q6_k(const float* values, std::byte* block);

// What encoders share: UsageError unless all elements of a block are finite, and the f16 of a scale, which must be.
void check_finite(BlockFormat format, const float* values);
float16 scale_as_f16(BlockFormat format, float scale, const float* values);

}  // namespace tutti
