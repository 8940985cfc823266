// Linear layers whose weight stays quantized.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

enum class BlockFormat : uint8_t;

// x W^T, where `blocks` holds W [out, in] as GGUF files do: each row is whole blocks of `format`, one of Q4_0 Q4_1 Q5_0
// Q5_1 Q8_0 Q4_K Q5_K Q6_K. x is rounded to 8 bits, in blocks of 32 elements or, for the last three, 256; the products
// are added in integers within a block and then in f32 (numerics contract, N12).
// Shapes: x [..., in], blocks [out, bytes of a row] -> [..., out]; in is a whole number of blocks.
// Dtypes: x f32, bf16 or f16, blocks u8; the result has the dtype of x, or `out_dtype`.
// Error: that of rounding x, at most 1/254 of the largest magnitude of its block for each element. A block of x with an
// element that is not finite makes the row of the result NaN; one below 1.5e-36 counts as zero.
// No gradient: dequantize() the weight where one is needed. Source: ggml_vec_dot_* of ggml (ggml-org/ggml).
Tensor quantized_linear(const Tensor& x, const Tensor& blocks, BlockFormat format, std::optional<DType> out_dtype = {});

}  // namespace tutti
