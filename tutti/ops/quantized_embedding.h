// Rows of quantized tables as numbers: looked up by index, or all of them.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

enum class BlockFormat : uint8_t;

// y[.., :] = the elements of row indices[..] of a table that stays quantized; only these rows are decoded.
// Shapes: blocks [V, bytes of a row], indices [...] -> [..., elements of a row]. Dtypes: blocks u8, whole blocks of one
// of the formats of quantized_linear(), indices i64 or i32; the result f32, or rounded once to bf16 or f16.
// UsageError for an index outside [0, V), naming its position. No gradient.
Tensor quantized_embedding(const Tensor& blocks, const Tensor& indices, BlockFormat format, DType dtype = DType::f32);

// The elements of quantized rows. Shapes: blocks [rows, bytes of a row] -> [rows, elements of a row], or matrices of
// them, [G, rows, bytes of a row]. Dtypes: u8 to f32. Each element is rounded at most once (core/block_codec.h). No
// gradient.
Tensor dequantize(const Tensor& blocks, BlockFormat format);

}  // namespace tutti
