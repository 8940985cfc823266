// Attention over 8-bit codes: int8, and fp8 in the format e4m3fn.
#pragma once

#include <optional>

#include "tutti/ops/affine_scale.h"

namespace tutti {

// Codes with the one scale, and zero point, that they all have.
struct CodedTensor {
  Tensor codes;
  AffineScale scale;
};

struct QuantizedSdpaOptions {
  bool causal = false;          // query i attends to keys up to i + (Sk - Sq)
  std::optional<double> scale;  // default: 1 / sqrt(D)
  Tensor lengths = {};          // integers [B]: as SdpaOptions::lengths
  // Booleans, true where a query attends to a key, or f32 that is added to the scaled scores: [B or 1, Hq or 1, Sq or
  // 1, Sk].
  Tensor mask = {};
  // What probabilities are rounded to: u8, or f8e4m3fn. Default: scale 1/255, or 1/448.
  AffineScale probabilities = {};
  // With a scale the result is codes of `out_dtype`, by default of the dtype of q.
  AffineScale out = {};
  std::optional<DType> out_dtype = {};  // without a scale: f32 (default), bf16 or f16
};

// softmax(scale * q k^T) v per head over codes; query head j uses key/value head j div (Hq / Hkv). Scores and sums over
// keys are exact sums of integers (of f8e4m3fn: chains of f32 in the trees of numerics contract N3 and N10); the
// softmax is f32, with the exact maximum of each row. A query with no visible key gives zeros.
// Shapes: q [B, Sq, Hq, D], k and v [B, Sk, Hkv, D], views with any strides -> [B, Sq, Hq, D].
// Dtypes: one for q, k and v: i8, u8 or f8e4m3fn. Codes of v that are NaN must not be hidden from a query, as 0 * NaN
// is NaN. Error against sdpa of the decoded values: that of rounding the result, and each probability, by at most half
// its scale (u8), or 1/16 of itself or 2^-10 of the scale (f8e4m3fn), where the codes reach to 1. No gradient.
// UsageError when shapes or dtypes do not match, for scales that are not positive and finite, zero points beyond the
// codes, and lengths beyond the keys. Source: torchao's quantized attention for x86, with grouped heads and the causal
// mask.
Tensor quantized_sdpa(const CodedTensor& q, const CodedTensor& k, const CodedTensor& v,
                      const QuantizedSdpaOptions& options = {});

}  // namespace tutti
