// Linear layers whose weight alone is quantized: activations keep their precision.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

// W [out, in] as codes of 8 bits, which are multiplied with the scale of their row, or of 4 bits, whose groups of
// neighbours in a row share a scale and a minimum.
struct CodedWeight {
  Tensor codes;         // i8 [out, in]; or u8 [out, in / 2], two codes of 0 to 15 a byte, the first in the low bits
  Tensor scale;         // f32: [out], or one number; of groups [out, in / group]
  Tensor minimum = {};  // f32 [out, in / group] for codes of 4 bits: a weight is fma(code, scale, minimum)
};

// x W^T. The sum over x * w has the tree of numerics contract N3, in f32, and is rounded once; that over codes of 8
// bits is multiplied with the scale before. Shapes: x [..., in] -> [..., out]; groups have a multiple of 8 elements.
// Dtypes: x f32, bf16 or f16; the result has that of x, or `out_dtype`. No gradient. UsageError when shapes or dtypes
// do not match. Source: torchao's int8 and int4 weight-only quantization.
Tensor weight_only_linear(const Tensor& x, const CodedWeight& weight, std::optional<DType> out_dtype = {});

}  // namespace tutti
