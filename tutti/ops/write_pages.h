// Writing keys and values into pages (paged_attention.h), as numbers or as codes.
//
// Dims: T rows, Hkv key/value heads, D head dim, P pages of N keys each.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Writes rows [T, Hkv, D] into the slots, i64 [T], of pages [P, Hkv, N, D]: slot s is place s % N of page s / N; a
// slot of -1 is skipped. The dtypes are one. UsageError when shapes or dtypes do not match, for slots beyond the pages,
// and for read-only memory. No other thread may read these slots meanwhile. Not differentiable.
void write_pages_(const Tensor& pages, const Tensor& rows, const Tensor& slots);

// The same for rows of f32, bf16 or f16 that are kept as codes, i8 or f8e4m3fn [P, Hkv, N, D], with a scale for each
// row of a head, f32 [P, Hkv, N], by the rule of codegen/codes/row_codes.h. What is written depends on the D elements
// of the row alone.
void write_page_codes_(const Tensor& codes, const Tensor& scales, const Tensor& rows, const Tensor& slots);

}  // namespace tutti
