// A linear layer whose weight does not change: its matrix in the order in which products read it.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Columns of a panel of a packed weight.
inline constexpr int64_t kPackedColumns = 48;

// `weight` in panels of kPackedColumns rows of it, k by k, zeros behind the last. Its own dtype and no gradient: pack
// again what was changed. Shapes: weight [out, in] -> [ceil(out / kPackedColumns), in, kPackedColumns]. Dtypes: f64, f32, bf16, f16.
Tensor pack_weight(const Tensor& weight);

// linear(x, weight) with the same bits, for packed = pack_weight(weight) and out_features = weight.size(0). A weight that is
// packed once is not packed at each call, and is read in one run: for few rows several times as fast.
// Shapes: x [..., in] -> [..., out_features]. Dtypes: x f32, bf16 or f16 with such a weight, any of the four with f64.
// Gradient: of x only. Error: sizes that do not fit.
Tensor packed_linear(const Tensor& x, const Tensor& packed, SymInt out_features);

}  // namespace tutti
