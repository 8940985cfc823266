// Products of groups of rows with matrices that stay quantized.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

enum class BlockFormat : uint8_t;

// Rows of x times one matrix for each group of them, as the experts of a mixture are applied: the rows of group g end
// at offsets[g], begin where those of the group before end, and are multiplied with blocks[g] as by quantized_linear().
// Rows behind the last group are -0.0.
// Shapes: x [T, in], blocks [G, out, bytes of a row], offsets [G] -> [T, out]; in is a whole number of blocks.
// Dtypes: x f32, bf16 or f16, blocks u8, offsets i64 or i32; the result has the dtype of x, or `out_dtype`.
// UsageError for offsets that decrease or exceed T. Error and formats: see quantized_linear(). No gradient.
Tensor quantized_grouped_mm(const Tensor& x, const Tensor& blocks, const Tensor& offsets, BlockFormat format,
                            std::optional<DType> out_dtype = {});

}  // namespace tutti
