// The sizes of Qwen3 models, published and small ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::models {

struct Qwen3Config {
  std::string flavor;
  int64_t dim, layers, heads, kv_heads, ffn_dim, vocab;
  bool tied_embeddings;
  int64_t head_dim = 128;
  double rope_theta = 1e6;
  double norm_eps = 1e-6;
  double init_std = 0.02;
  // A mixture of so many experts of ffn_dim hidden features, of which each token takes active_experts; 0: one
  // feed-forward layer for all tokens.
  int64_t experts = 0, active_experts = 0;
};

// The configuration of a flavor: 0.6B, 1.7B, 4B, 8B, 14B, 32B, and the small debugmodel, quickstart, quickstart-tp4,
// tiny and tiny-tp4; with experts 30B-A3B, and the small debugmodel_moe and tiny_moe. UsageError, listing the flavors,
// for any other name.
Qwen3Config qwen3_config(std::string_view flavor);
std::vector<std::string> qwen3_flavors();

// The number of parameters, computed without building the model.
int64_t parameter_count(const Qwen3Config& config);
// Those that one token meets: all of a dense model, and of a mixture of experts those of active_experts experts.
int64_t active_parameter_count(const Qwen3Config& config);
// Training FLOPs per token: 6 per active parameter, not counting an embedding that is only looked up, plus
// 12 * layers * heads * head_dim * sequence_length for attention (as if it were not causal).
double training_flops_per_token(const Qwen3Config& config, int64_t sequence_length);

}  // namespace tutti::models
