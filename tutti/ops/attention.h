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
  // Last key that each query may see, i32 [B, Sq], besides the bound of `causal`: the position of the query when queries
  // do not lie in the order of their positions, as under context parallelism.
  Tensor last_key = {};
};

// softmax(scale * q k^T) v per head; query head j uses key/value head j div (Hq / Hkv). Scores, statistics and sums in
// f32, rounded once. Keys are taken in blocks of 64, combined by the softmax monoid in the aligned tree anchored at key
// 0 (numerics contract, N10): a row's bits depend neither on padding nor on what else is in the batch. A query that
// sees no key gives zeros.
// The gradients of k and v sum over queries in the order in which the queries lie, with leaves of token_grain() (N3t).
// Shapes: q [B, Sq, Hq, D], k and v [B, Sk, Hkv, D] -> [B, Sq, Hq, D]. Source: Vaswani et al. 2017; Milakov 2018.
Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});

// For queries that are a part of those that see the keys (context parallelism).
struct SdpaResult {
  Tensor output;     // as sdpa
  Tensor logsumexp;  // [B, Sq, Hq], f32 (f64 for f64); has no gradient
};
SdpaResult sdpa_with_logsumexp(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options = {});
struct SdpaGradients {
  Tensor q, k, v;
};
// Gradients of sdpa for the cotangent `grad` of its output. Those of k and v are partial values over the queries: they
// stay f32 (f64) until the parts of all ranks are added (N4). Not differentiable.
SdpaGradients sdpa_partial_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SdpaResult& result, const SdpaOptions& options = {});

}  // namespace tutti
