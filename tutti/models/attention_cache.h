// AttentionCache: where a decoder keeps the keys and values of tokens that earlier forwards have seen.
#pragma once

#include <cstdint>

#include "tutti/ops/attention.h"

namespace tutti::models {

// A forward whose TokenBatch names a cache gives it the queries, keys and values of each layer in turn instead of
// calling sdpa. The cache knows which sequence and position each token of the batch has.
//
// Dims: T tokens of the batch, H heads, K key/value heads, E head dim.
class AttentionCache {
 public:
  virtual ~AttentionCache() = default;

  // Keeps k and v, each [T, K, E], and attends from q [T, H, E] to all keys of each token's sequence up to its own.
  // Undefined k and v: those that this layer has kept in this forward, for the queries of a later layer.
  // `options` is what sdpa would get, without the bounds of keys. Returns [T, H, E].
  virtual Tensor attend(int64_t layer, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                        const SdpaOptions& options) = 0;
};

}  // namespace tutti::models
