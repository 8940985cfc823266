#include "tutti/models/qwen3.h"

#include <algorithm>
#include <deque>

#include "tutti/autograd/checkpoint.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::models {
namespace {

using nn::Init;

const std::vector<Qwen3Config>& configs() {
  static const std::vector<Qwen3Config> table = {
      // A model that trains in a second, to try out whatever surrounds training.
      {.flavor = "tiny", .dim = 32, .layers = 2, .heads = 2, .kv_heads = 1, .ffn_dim = 64, .vocab = 320, .tied_embeddings = true, .head_dim = 16},
      // A model that a laptop trains in minutes: the quickstart.
      {.flavor = "quickstart", .dim = 192, .layers = 4, .heads = 6, .kv_heads = 3, .ffn_dim = 512, .vocab = 2048, .tied_embeddings = true,
       .head_dim = 32},
      {.flavor = "debugmodel", .dim = 256, .layers = 8, .heads = 16, .kv_heads = 8, .ffn_dim = 3072, .vocab = 2048, .tied_embeddings = true},
      {.flavor = "0.6B", .dim = 1024, .layers = 28, .heads = 16, .kv_heads = 8, .ffn_dim = 3072, .vocab = 151936, .tied_embeddings = true},
      {.flavor = "1.7B", .dim = 2048, .layers = 28, .heads = 16, .kv_heads = 8, .ffn_dim = 6144, .vocab = 151936, .tied_embeddings = true},
      {.flavor = "4B", .dim = 2560, .layers = 36, .heads = 32, .kv_heads = 8, .ffn_dim = 9728, .vocab = 151936, .tied_embeddings = true},
      {.flavor = "8B", .dim = 4096, .layers = 36, .heads = 32, .kv_heads = 8, .ffn_dim = 12288, .vocab = 151936, .tied_embeddings = false},
      {.flavor = "14B", .dim = 5120, .layers = 40, .heads = 40, .kv_heads = 8, .ffn_dim = 17408, .vocab = 151936, .tied_embeddings = false},
      {.flavor = "32B", .dim = 5120, .layers = 64, .heads = 64, .kv_heads = 8, .ffn_dim = 25600, .vocab = 151936, .tied_embeddings = false},
  };
  return table;
}

// Parameters of the matrix products of one block.
int64_t block_products(const Qwen3Config& c) {
  return c.dim * c.head_dim * (2 * c.heads + 2 * c.kv_heads) + 3 * c.dim * c.ffn_dim;
}

// A weight at its use: in the compute dtype. Its gradient comes back in f32.
Tensor used(const Tensor& weight, DType compute) { return cast(weight, compute); }

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

int64_t parameter_count(const Qwen3Config& c) {
  const int64_t block = block_products(c) + 2 * c.head_dim + 2 * c.dim;
  return c.layers * block + c.dim + c.vocab * c.dim * (c.tied_embeddings ? 1 : 2);
}

double training_flops_per_token(const Qwen3Config& c, int64_t sequence_length) {
  const int64_t looked_up = c.tied_embeddings ? 0 : c.vocab * c.dim;
  return 6.0 * static_cast<double>(parameter_count(c) - looked_up) + 12.0 * static_cast<double>(c.layers * c.heads * c.head_dim) * static_cast<double>(sequence_length);
}

struct Qwen3::Block final : nn::Module {
  struct Norm final : nn::Module {
    explicit Norm(int64_t dim) : weight(add_parameter("weight", {dim}, Init::ones())) {}
    Tensor weight;
  };
  struct Linear final : nn::Module {
    Linear(int64_t in, int64_t out, double std) : weight(add_parameter("weight", {out, in}, Init::normal(std))) {}
    Tensor weight;  // [out, in]
  };
  struct Attention final : nn::Module {
    explicit Attention(const Qwen3Config& c)
        : q(c.dim, c.heads * c.head_dim, c.init_std), k(c.dim, c.kv_heads * c.head_dim, c.init_std),
          v(c.dim, c.kv_heads * c.head_dim, c.init_std), o(c.heads * c.head_dim, c.dim, c.init_std), q_norm(c.head_dim),
          k_norm(c.head_dim) {
      add_module("q_proj", q);
      add_module("k_proj", k);
      add_module("v_proj", v);
      add_module("o_proj", o);
      add_module("q_norm", q_norm);
      add_module("k_norm", k_norm);
    }
    Linear q, k, v, o;
    Norm q_norm, k_norm;
  };
  struct FeedForward final : nn::Module {
    explicit FeedForward(const Qwen3Config& c)
        : gate(c.dim, c.ffn_dim, c.init_std), up(c.dim, c.ffn_dim, c.init_std), down(c.ffn_dim, c.dim, c.init_std) {
      add_module("gate_proj", gate);
      add_module("up_proj", up);
      add_module("down_proj", down);
    }
    Linear gate, up, down;
  };

  explicit Block(const Qwen3Config& c) : attention(c), mlp(c), input_norm(c.dim), post_attention_norm(c.dim) {
    add_module("self_attn", attention);
    add_module("mlp", mlp);
    add_module("input_layernorm", input_norm);
    add_module("post_attention_layernorm", post_attention_norm);
  }
  Attention attention;
  FeedForward mlp;
  Norm input_norm, post_attention_norm;
};

struct Qwen3::Decoder {
  std::deque<Block> blocks;
};

Qwen3::Qwen3(const Qwen3Config& config, int64_t max_positions)
    : config_(config), rope_(rope_table(max_positions, config.head_dim, config.rope_theta)), decoder_(std::make_unique<Decoder>()) {
  TUTTI_CHECK(config.kv_heads > 0 && config.heads % config.kv_heads == 0,
              "qwen3 {}: {} query heads cannot share {} key/value heads evenly", config.flavor, config.heads, config.kv_heads);
  embedding_VD_ = add_parameter("model.embed_tokens.weight", {config.vocab, config.dim}, Init::normal(config.init_std));
  for (int64_t i = 0; i < config.layers; ++i) add_module(fmt::format("model.layers.{}", i), decoder_->blocks.emplace_back(config));
  norm_D_ = add_parameter("model.norm.weight", {config.dim}, Init::ones());
  head_VD_ = config.tied_embeddings ? embedding_VD_
                                    : add_parameter("lm_head.weight", {config.vocab, config.dim}, Init::normal(config.init_std));
}

Qwen3::~Qwen3() = default;

Tensor Qwen3::block_forward(const Block& block, const Tensor& x_TD, const TokenBatch& batch, const Tensor& cos_TE,
                            const Tensor& sin_TE, DType compute) const {
  const auto& a = block.attention;
  const SymInt T = x_TD.size(0), B = batch.rows, S = floordiv(T, B);
  const int64_t H = config_.heads, K = config_.kv_heads, E = config_.head_dim;
  const auto project = [&](const Tensor& x, const Block::Linear& layer) { return linear(x, used(layer.weight, compute)); };
  // The shared norm weight is expanded over heads: its gradient sums tokens per head first, heads last.
  const auto heads_of = [&](const Tensor& x, const Block::Linear& layer, const Block::Norm& norm, int64_t heads) {
    const Tensor x_THE = reshape(project(x, layer), {T, heads, E});
    const Tensor normed = rms_norm(x_THE, expand(used(norm.weight, compute), {heads, E}), config_.norm_eps);
    return reshape(rope(normed, cos_TE, sin_TE), {B, S, heads, E});
  };

  ModuleScope module("self_attn");
  const Tensor n_TD = rms_norm(x_TD, used(block.input_norm.weight, compute), config_.norm_eps);
  const Tensor q_BSHE = heads_of(n_TD, a.q, a.q_norm, H), k_BSKE = heads_of(n_TD, a.k, a.k_norm, K);
  const Tensor v_BSKE = reshape(project(n_TD, a.v), {B, S, K, E});
  const Tensor attended = sdpa(q_BSHE, k_BSKE, v_BSKE, {.causal = true, .first_key = reshape(batch.first_key, {B, S})});
  const Tensor h_TD = add(x_TD, project(reshape(attended, {T, H * E}), a.o));

  module.next("mlp");
  const Tensor m_TD = rms_norm(h_TD, used(block.post_attention_norm.weight, compute), config_.norm_eps);
  // Statements of their own: C++ leaves the order of arguments open, and cotangents are summed in forward order.
  const Tensor gate_TF = project(m_TD, block.mlp.gate);
  const Tensor up_TF = project(m_TD, block.mlp.up);
  return add(h_TD, project(swiglu(gate_TF, up_TF), block.mlp.down));
}

Tensor Qwen3::hidden(const TokenBatch& batch, const ForwardOptions& options) const {
  const DType compute = options.compute_dtype;
  const ModuleScope module("model");
  const Tensor cos_TE = index_select(rope_.cos, 0, batch.positions), sin_TE = index_select(rope_.sin, 0, batch.positions);
  Tensor x_TD = embedding(used(embedding_VD_, compute), batch.tokens);
  int64_t layer = 0;
  for (const Block& block : decoder_->blocks) {
    const ModuleScope in_layer("layers", layer++);
    const auto run = [this, &block, batch, cos_TE, sin_TE, compute](std::span<const Tensor> inputs) {
      return block_forward(block, inputs[0], batch, cos_TE, sin_TE, compute);
    };
    x_TD = options.checkpoint_blocks ? checkpoint(run, std::span(&x_TD, 1)) : run(std::span(&x_TD, 1));
  }
  return rms_norm(x_TD, used(norm_D_, compute), config_.norm_eps);
}

Tensor Qwen3::forward(const TokenBatch& batch, const ForwardOptions& options) const {
  const Tensor x_TD = hidden(batch, options);
  const ModuleScope module("lm_head");
  return matmul(x_TD, transpose(used(head_VD_, options.compute_dtype), 0, 1), {.out_dtype = DType::f32});
}

Tensor Qwen3::losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options) const {
  if (options.loss_max_bytes == 0) {
    const Tensor logits = forward(batch, options);
    const ModuleScope module("loss");
    return cross_entropy(logits, labels);
  }
  const Tensor x_TD = hidden(batch, options);
  const ModuleScope module("loss");
  return linear_cross_entropy(x_TD, used(head_VD_, options.compute_dtype), labels, {.reduction = LossReduction::none, .max_bytes = options.loss_max_bytes});
}

}  // namespace tutti::models
