// Scaled dot-product attention.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct SdpaOptions {
  bool causal = false;          // query i sees keys up to i + (Sk - Sq)
  std::optional<double> scale;  // default: 1 / sqrt(D)
  // First key that each query may see, i32 [B, Sq]: the start of its document in a packed sequence.
  Tensor first_key = {};
};

// softmax(scale * q k^T) v per head; query head j uses key/value head j div (Hq / Hkv). Scores, statistics and sums in
// f32, rounded once. Keys are taken in blocks of 64, combined by the softmax monoid in the aligned tree anchored at key
// 0 (numerics contract, N10): a row's bits depend neither on padding nor on what else is in the batch. A query that
// sees no key gives zeros.
// Shapes: q [B, Sq, Hq, D], k and v [B, Sk, Hkv, D] -> [B, Sq, Hq, D]. Source: Vaswani et al. 2017; Milakov 2018.
Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});

}  // namespace tutti
