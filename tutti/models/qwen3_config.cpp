#include "tutti/models/qwen3_config.h"

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

const std::vector<Qwen3Config>& configs() {
  static const std::vector<Qwen3Config> table = {
      // A model that trains in a second, to try out whatever surrounds training.
      {.flavor = "tiny",
       .dim = 32,
       .layers = 2,
       .heads = 2,
       .kv_heads = 1,
       .ffn_dim = 64,
       .vocab = 320,
       .tied_embeddings = true,
       .head_dim = 16},
      // The smallest that tensor parallelism divides over four ranks.
      {.flavor = "tiny-tp4",
       .dim = 32,
       .layers = 2,
       .heads = 8,
       .kv_heads = 4,
       .ffn_dim = 512,
       .vocab = 2048,
       .tied_embeddings = true},
      // A model that a laptop trains in minutes: the quickstart.
      {.flavor = "quickstart",
       .dim = 192,
       .layers = 4,
       .heads = 6,
       .kv_heads = 3,
       .ffn_dim = 512,
       .vocab = 2048,
       .tied_embeddings = true,
       .head_dim = 32},
      // As large as the quickstart, and legal for tensor parallelism over four ranks.
      {.flavor = "quickstart-tp4",
       .dim = 128,
       .layers = 4,
       .heads = 8,
       .kv_heads = 4,
       .ffn_dim = 512,
       .vocab = 2048,
       .tied_embeddings = true},
      {.flavor = "debugmodel",
       .dim = 256,
       .layers = 8,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 3072,
       .vocab = 2048,
       .tied_embeddings = true},
      {.flavor = "0.6B",
       .dim = 1024,
       .layers = 28,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 3072,
       .vocab = 151936,
       .tied_embeddings = true},
      {.flavor = "1.7B",
       .dim = 2048,
       .layers = 28,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 6144,
       .vocab = 151936,
       .tied_embeddings = true},
      {.flavor = "4B",
       .dim = 2560,
       .layers = 36,
       .heads = 32,
       .kv_heads = 8,
       .ffn_dim = 9728,
       .vocab = 151936,
       .tied_embeddings = true},
      {.flavor = "8B",
       .dim = 4096,
       .layers = 36,
       .heads = 32,
       .kv_heads = 8,
       .ffn_dim = 12288,
       .vocab = 151936,
       .tied_embeddings = false},
      {.flavor = "14B",
       .dim = 5120,
       .layers = 40,
       .heads = 40,
       .kv_heads = 8,
       .ffn_dim = 17408,
       .vocab = 151936,
       .tied_embeddings = false},
      {.flavor = "32B",
       .dim = 5120,
       .layers = 64,
       .heads = 64,
       .kv_heads = 8,
       .ffn_dim = 25600,
       .vocab = 151936,
       .tied_embeddings = false},
      // Mixtures of experts.
      {.flavor = "tiny_moe",
       .dim = 32,
       .layers = 2,
       .heads = 2,
       .kv_heads = 1,
       .ffn_dim = 24,
       .vocab = 320,
       .tied_embeddings = true,
       .head_dim = 16,
       .experts = 6,
       .active_experts = 2},
      // As small, with experts that two, four or eight ranks can divide.
      {.flavor = "tiny_moe-ep8",
       .dim = 32,
       .layers = 2,
       .heads = 2,
       .kv_heads = 1,
       .ffn_dim = 24,
       .vocab = 320,
       .tied_embeddings = true,
       .head_dim = 16,
       .experts = 8,
       .active_experts = 3},
      // The smallest that tensor parallelism divides over four ranks as well.
      {.flavor = "tiny_moe-tp4",
       .dim = 32,
       .layers = 2,
       .heads = 8,
       .kv_heads = 4,
       .ffn_dim = 24,
       .vocab = 2048,
       .tied_embeddings = true,
       .experts = 8,
       .active_experts = 3},
      {.flavor = "debugmodel_moe",
       .dim = 256,
       .layers = 8,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 768,
       .vocab = 2048,
       .tied_embeddings = true,
       .experts = 64,
       .active_experts = 8},
      {.flavor = "30B-A3B",
       .dim = 2048,
       .layers = 48,
       .heads = 32,
       .kv_heads = 4,
       .ffn_dim = 768,
       .vocab = 151936,
       .tied_embeddings = false,
       .experts = 128,
       .active_experts = 8},
  };
  return table;
}

// Parameters of a model of which each block has so many feed-forward layers.
int64_t count_with(const Qwen3Config& c, int64_t feed_forwards) {
  const int64_t attention = c.dim * c.head_dim * (2 * c.heads + 2 * c.kv_heads), norms = 2 * c.head_dim + 2 * c.dim;
  const int64_t block = attention + norms + feed_forwards * 3 * c.dim * c.ffn_dim + c.experts * c.dim;
  return c.layers * block + c.dim + c.vocab * c.dim * (c.tied_embeddings ? 1 : 2);
}

}  // namespace

Qwen3Config qwen3_config(std::string_view flavor) {
  for (const Qwen3Config& c : configs()) {
    if (c.flavor == flavor) return c;
  }
  throw UsageError(unknown_name_message("qwen3 flavor", flavor, qwen3_flavors()));
}

std::vector<std::string> qwen3_flavors() {
  std::vector<std::string> names;
  for (const Qwen3Config& c : configs()) names.push_back(c.flavor);
  return names;
}

int64_t parameter_count(const Qwen3Config& c) { return count_with(c, c.experts > 0 ? c.experts : 1); }
int64_t active_parameter_count(const Qwen3Config& c) { return count_with(c, c.experts > 0 ? c.active_experts : 1); }

double training_flops_per_token(const Qwen3Config& c, int64_t sequence_length) {
  const int64_t looked_up = c.tied_embeddings ? 0 : c.vocab * c.dim;
  return 6.0 * static_cast<double>(active_parameter_count(c) - looked_up) +
         12.0 * static_cast<double>(c.layers * c.heads * c.head_dim) * static_cast<double>(sequence_length);
}

}  // namespace tutti::models
