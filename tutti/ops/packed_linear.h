// A linear layer with a constant weight, packed in the order in which the matrix product reads it.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// The number of output features in one panel of a packed weight.
inline constexpr int64_t kPackedColumns = 48;

// `weight` rearranged into panels of kPackedColumns output features, zero-padded at the end. It keeps its dtype and has
// no gradient; when the weight changes, pack it again. Shapes: weight [out, in] -> [ceil(out / kPackedColumns), in,
// kPackedColumns]. Dtypes: f64, f32, bf16, f16.
Tensor pack_weight(const Tensor& weight);

// linear(x, weight) with the same bits, where packed = pack_weight(weight) and out_features = weight.size(0). The
// weight is not packed again at each call and is read sequentially, which is several times as fast for few rows.
// Shapes: x [..., in] -> [..., out_features]. Dtypes: x and the weight f32, bf16 or f16 in any combination; with an f64
// weight, x of any of the four. Only x gets a gradient. UsageError when the sizes do not match.
Tensor packed_linear(const Tensor& x, const Tensor& packed, SymInt out_features);

}  // namespace tutti
