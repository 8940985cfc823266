// Linear layers of 8-bit codes: int8, and fp8 in the format e4m3fn.
#pragma once

#include <optional>

#include "tutti/ops/affine_scale.h"

namespace tutti {

// W [out, in] is codes * scale, with zero point 0.
struct ScaledWeight {
  Tensor codes;      // i8 or f8e4m3fn [out, in]
  Tensor scale;      // f32: one number, or [out], one for each output feature
  Tensor bias = {};  // f32 [out]; undefined: none
};

struct ScaledLinearOptions {
  // The scale of x has one number, or one for each row. Where it is undefined, each row of x, which must then be of
  // floats, gets the scale of its largest magnitude (dynamic, per token).
  AffineScale x = {};
  // What x is rounded to where it is floats and has a scale: i8 or u8 for weights of i8.
  DType x_codes = DType::i8;
  // With a scale the result is codes of `out_dtype`, i8, u8 or f8e4m3fn.
  AffineScale out = {};
  // Default: the dtype of x where that is a float, f32 where x is codes, and x_codes with a scale.
  std::optional<DType> out_dtype = {};
};

// x W^T + bias. For i8 weights the sum over (code of x - zero point) * code of W is exact; for f8e4m3fn it is a chain
// of f32 over decoded codes in the tree of numerics contract N3. It is multiplied with the product of both scales, the
// bias is added, each rounded to f32, and the result is rounded once more (numerics contract, N12).
// Rounding numbers to codes: x times the inverse of the scale, to nearest even, clamped to the range of the codes
// (e4m3fn to +-448, where NaN stays NaN; of integers NaN becomes the lowest code). A row with a scale of its own
// (dynamic) has codes up to 127 or 448; one with an element that is not finite gives NaN, one of magnitudes whose scale
// is no normal number gives the bias.
// Shapes: x [..., in], weight [out, in] -> [..., out].
// Dtypes: x f32, bf16 or f16, or codes: i8 or u8 with weights of i8, f8e4m3fn with those of f8e4m3fn.
// Error of a dynamic row against x W^T: for each element of x at most 1/254 of the largest magnitude of the row (int8),
// or 1/16 of its own, or 2^-10 / 448 of the largest (fp8). No gradient. UsageError when shapes or dtypes do not match,
// for scales of x and of results that are not positive and finite, zero points beyond the codes or without a scale, and
// for integer rows of more than 65793 elements. Source: torchao's int8 and float8 dynamic quantization; oneDNN's matmul
// with scales and zero points.
Tensor scaled_linear(const Tensor& x, const ScaledWeight& weight, const ScaledLinearOptions& options = {});

}  // namespace tutti
