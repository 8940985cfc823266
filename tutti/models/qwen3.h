// Qwen3, dense: a decoder with grouped-query attention, per-head norms on queries and keys, rotary positions and a gated
// feed-forward layer. Source: the published configurations and weights of Qwen3.
//
//   h = x + Attention(RmsNorm(x));  y = h + FeedForward(RmsNorm(h));  logits = Head(RmsNorm(y_last))
//
// Dims: B rows of S tokens, T = B * S tokens, D model dim, H heads, K key/value heads, E head dim, F hidden dim, V vocabulary.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/ops/rope.h"

namespace tutti::models {

struct Qwen3Config {
  std::string flavor;
  int64_t dim, layers, heads, kv_heads, ffn_dim, vocab;
  bool tied_embeddings;
  int64_t head_dim = 128;
  double rope_theta = 1e6;
  double norm_eps = 1e-6;
  double init_std = 0.02;
};

// The configuration of a flavor: 0.6B, 1.7B, 4B, 8B, 14B, 32B, and the small debugmodel, quickstart and tiny. UsageError, listing
// the flavors, for any other name.
Qwen3Config qwen3_config(std::string_view flavor);
std::vector<std::string> qwen3_flavors();

// The number of parameters, computed without building the model.
int64_t parameter_count(const Qwen3Config& config);
// Training FLOPs per token: 6 per parameter, not counting an embedding that is only looked up, plus
// 12 * layers * heads * head_dim * sequence_length for attention (as if it were not causal).
double training_flops_per_token(const Qwen3Config& config, int64_t sequence_length);

// B rows of S tokens; every tensor is [B * S] in row-major order.
struct TokenBatch {
  Tensor tokens;     // i32
  Tensor positions;  // i32: the position of each token in its document
  Tensor first_key;  // i32: the position within the row of the first token of the token's document
  int64_t rows = 0;
};

struct ForwardOptions {
  DType compute_dtype = DType::f32;  // with bf16, weights are cast at each use and activations are bf16
  bool checkpoint_blocks = false;    // recompute each block in backward
  int64_t loss_max_bytes = 0;        // losses() computes logits in chunks of at most this many bytes; 0: all logits at once
};

class Qwen3 final : public nn::Module {
 public:
  // Parameters are uninitialized; call nn::initialize. Positions must be below `max_positions`.
  Qwen3(const Qwen3Config& config, int64_t max_positions);
  ~Qwen3() override;

  // Logits [T, V] in f32.
  Tensor forward(const TokenBatch& batch, const ForwardOptions& options = {}) const;
  // The cross_entropy of the logits and `labels` [T], as f32 [T]. The bits do not depend on options.loss_max_bytes.
  Tensor losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options = {}) const;

  const Qwen3Config& config() const { return config_; }

 private:
  struct Block;
  // The input of the head: [T, dim] in the compute dtype.
  Tensor hidden(const TokenBatch& batch, const ForwardOptions& options) const;
  Tensor block_forward(const Block& block, const Tensor& x_TD, const TokenBatch& batch, const Tensor& cos_TE,
                       const Tensor& sin_TE, DType compute) const;

  Qwen3Config config_;
  RopeTable rope_;
  Tensor embedding_VD_, norm_D_, head_VD_;
  struct Decoder;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace tutti::models
