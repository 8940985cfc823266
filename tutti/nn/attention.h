// Multi-head attention as a module.
#pragma once

#include <optional>

#include "tutti/nn/linear.h"
#include "tutti/ops/attention.h"

namespace tutti::nn {

struct MultiheadAttentionOptions {
  int64_t kv_heads =
      0;  // key/value heads, each shared by heads / kv_heads query heads (grouped-query attention); 0: as many as heads
  int64_t head_dim = 0;  // 0: dim / heads
  bool bias = true;      // of the four projections
};

// Keys and values of the tokens so far, for generation. Made by MultiheadAttention::make_cache(); used by one thread.
struct KvCache {
  Tensor keys, values;  // [B, capacity, kv_heads, head_dim]
  int64_t length = 0;   // tokens that are valid, the same for all sequences
};

// Projections q_proj, k_proj, v_proj, scaled dot-product attention per head (sdpa), and out_proj. Unlike in PyTorch,
// tensors are [B, S, dim], the three input projections are separate parameters, and masks are those of SdpaOptions: a
// boolean mask is true where a query attends.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(int64_t dim, int64_t heads, const MultiheadAttentionOptions& options = {});

  // Self-attention. Shapes: x [B, S, dim] -> [B, S, dim].
  Tensor forward(const Tensor& x_BSD, const SdpaOptions& options = {}) const {
    return forward(x_BSD, x_BSD, x_BSD, options);
  }
  // Shapes: query [B, Sq, dim], key and value [B, Sk, dim] -> [B, Sq, dim].
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const SdpaOptions& options = {}) const;
  // Causal self-attention of the next tokens x to all tokens so far, which are added to the cache. The results have the
  // bits of one forward over all tokens with causal = true. Not differentiable. UsageError when the cache is full, of
  // another batch size or dtype, and inside compile() and checkpoint(), because the cache counts its tokens on the
  // host.
  Tensor forward(const Tensor& x_BSD, KvCache& cache) const;
  KvCache make_cache(int64_t batch, int64_t capacity, DType dtype = DType::f32) const;

  Child<Linear> q_proj, k_proj, v_proj, out_proj;

 private:
  int64_t heads_, kv_heads_, head_dim_;
};

}  // namespace tutti::nn
