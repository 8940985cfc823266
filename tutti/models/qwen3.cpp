#include "tutti/models/qwen3.h"

#include <optional>

#include "tutti/autograd/checkpoint.h"
#include "tutti/models/qwen3_published.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/moe.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/norm.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/rope.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::models {
namespace {

// A projection without bias whose weight [out, in] starts from a normal distribution.
struct Projection final : nn::Linear {
  Projection(int64_t in, int64_t out, const Qwen3Config& c)
      : Linear(in, out, {.bias = false, .init = nn::Init::normal(c.init_std)}) {}
};

// What the blocks share of a batch.
struct Positions {
  Tensor cos_TE, sin_TE;  // angles of each token
  Tensor first_key_BS;
};

struct Attention final : nn::Module {
  Attention(const Qwen3Config& c, double dropout_p)
      : q_proj(this, "q_proj", c.dim, c.heads * c.head_dim, c),
        k_proj(this, "k_proj", c.dim, c.kv_heads * c.head_dim, c),
        v_proj(this, "v_proj", c.dim, c.kv_heads * c.head_dim, c),
        o_proj(this, "o_proj", c.heads * c.head_dim, c.dim, c),
        q_norm(this, "q_norm", c.head_dim, nn::RMSNormOptions{.eps = c.norm_eps}),
        k_norm(this, "k_norm", c.head_dim, nn::RMSNormOptions{.eps = c.norm_eps}),
        dropout(this, "dropout", dropout_p),
        heads(c.heads),
        kv_heads(c.kv_heads),
        head_dim(c.head_dim) {}

  Tensor forward(const Tensor& x_TD, const Positions& at) const {
    const SymInt T = x_TD.size(0), B = at.first_key_BS.size(0), S = at.first_key_BS.size(1);
    const auto [q_TQ, k_TK, v_TK] = nn::multi_linear(x_TD, q_proj, k_proj, v_proj);
    const Tensor q_BSHE = reshape(rotated(q_TQ, heads, q_norm, at), {B, S, heads, head_dim});
    const Tensor k_BSKE = reshape(rotated(k_TK, kv_heads, k_norm, at), {B, S, kv_heads, head_dim});
    const Tensor v_BSKE = reshape(v_TK, {B, S, kv_heads, head_dim});
    const Tensor attended = sdpa(q_BSHE, k_BSKE, v_BSKE, {.causal = true, .first_key = at.first_key_BS});
    return dropout(o_proj(reshape(attended, {T, heads * head_dim})));
  }

  nn::Child<Projection> q_proj, k_proj, v_proj, o_proj;
  nn::Child<nn::RMSNorm> q_norm, k_norm;
  nn::Child<nn::Dropout> dropout;
  const int64_t heads, kv_heads, head_dim;

 private:
  // The shared weight of the norm is expanded over heads: its gradient sums tokens per head first, heads last.
  Tensor rotated(const Tensor& projected, int64_t count, const nn::Child<nn::RMSNorm>& norm,
                 const Positions& at) const {
    const Tensor x_THE = reshape(projected, {projected.size(0), count, head_dim});
    return rope(rms_norm(x_THE, expand(norm->weight, {count, head_dim}), norm->eps()), at.cos_TE, at.sin_TE);
  }
};

struct FeedForward final : nn::Module {
  FeedForward(const Qwen3Config& c, double dropout_p)
      : gate_proj(this, "gate_proj", c.dim, c.ffn_dim, c),
        up_proj(this, "up_proj", c.dim, c.ffn_dim, c),
        down_proj(this, "down_proj", c.ffn_dim, c.dim, c),
        dropout(this, "dropout", dropout_p) {}

  Tensor forward(const Tensor& x_TD) const {
    const auto [gate_TF, up_TF] = nn::multi_linear(x_TD, gate_proj, up_proj);
    return dropout(down_proj(swiglu(gate_TF, up_TF)));
  }

  nn::Child<Projection> gate_proj, up_proj, down_proj;
  nn::Child<nn::Dropout> dropout;
};

// The routing of Qwen3: softmax over all experts, weights of a token that add up to 1.
nn::MoEOptions moe_options(const Qwen3Config& c) {
  const nn::Init init = nn::Init::normal(c.init_std);
  return {.dim = c.dim,
          .hidden_dim = c.ffn_dim,
          .router = {.num_experts = c.experts,
                     .top_k = c.active_experts,
                     .score_func = nn::ScoreFunction::softmax,
                     .route_norm = true,
                     .init = init},
          .init = init};
}

struct ExpertFeedForward final : nn::MoE {
  ExpertFeedForward(const Qwen3Config& c, double dropout_p)
      : MoE(moe_options(c)), dropout(this, "dropout", dropout_p) {}
  Tensor forward(const Tensor& x_TD) const { return dropout(MoE::forward(x_TD)); }

  nn::Child<nn::Dropout> dropout;
};

// Either feed-forward layer of a block, as its submodule "mlp".
struct Mlp {
  Mlp(nn::Module* block, const Qwen3Config& c, double dropout_p) {
    if (c.experts > 0) experts = std::make_unique<nn::Child<ExpertFeedForward>>(block, "mlp", c, dropout_p);
    else dense = std::make_unique<nn::Child<FeedForward>>(block, "mlp", c, dropout_p);
  }
  Tensor operator()(const Tensor& x_TD) const { return dense != nullptr ? (*dense)(x_TD) : (*experts)(x_TD); }

  std::unique_ptr<nn::Child<FeedForward>> dense;
  std::unique_ptr<nn::Child<ExpertFeedForward>> experts;
};

struct Block final : nn::Module {
  Block(const Qwen3Config& c, double dropout_p)
      : self_attn(this, "self_attn", c, dropout_p),
        mlp(this, c, dropout_p),
        input_layernorm(this, "input_layernorm", c.dim, nn::RMSNormOptions{.eps = c.norm_eps}),
        post_attention_layernorm(this, "post_attention_layernorm", c.dim, nn::RMSNormOptions{.eps = c.norm_eps}) {}

  Tensor forward(const Tensor& x_TD, const Positions& at) const {
    const Tensor h_TD = add(x_TD, self_attn(input_layernorm(x_TD), at));
    return add(h_TD, mlp(post_attention_layernorm(h_TD)));
  }

  nn::Child<Attention> self_attn;
  Mlp mlp;
  nn::Child<nn::RMSNorm> input_layernorm, post_attention_layernorm;
};

}  // namespace

struct Qwen3::Decoder final : nn::Module {
  Decoder(const Qwen3Config& c, const ModelOptions& options)
      : embed_tokens(this, "embed_tokens", c.vocab, c.dim, nn::EmbeddingOptions{.init = nn::Init::normal(c.init_std)}),
        layers(this, "layers"),
        norm(this, "norm", c.dim, nn::RMSNormOptions{.eps = c.norm_eps}),
        angles(std::make_shared<std::optional<RopeTable>>()) {
    for (int64_t i = 0; i < c.layers; ++i) layers->add(c, options.dropout);
    const auto table = [=, made = angles, positions = options.max_positions]() -> const RopeTable& {
      if (!made->has_value()) *made = rope_table(positions, c.head_dim, c.rope_theta);
      return **made;
    };
    cos = register_buffer("rope_cos", [table] { return table().cos; });
    sin = register_buffer("rope_sin", [table] { return table().sin; });
  }

  Tensor forward(const TokenBatch& batch, const ForwardOptions& options) const {
    const SymInt B = batch.rows, S = floordiv(batch.tokens.size(0), B);
    const Tensor cosines = index_select(cos, 0, batch.positions);
    const Tensor sines = index_select(sin, 0, batch.positions);
    const Positions at{cosines, sines, reshape(batch.first_key, {B, S})};
    Tensor x_TD = embed_tokens(batch.tokens);
    for (const nn::Child<Block>& block : *layers) {
      const auto run = [&block, at](std::span<const Tensor> inputs) { return block(inputs[0], at); };
      x_TD = options.checkpoint_blocks ? checkpoint(run, std::span(&x_TD, 1)) : run(std::span(&x_TD, 1));
    }
    return norm(x_TD);
  }

  nn::Child<nn::Embedding> embed_tokens;
  nn::Child<nn::ModuleList<Block>> layers;
  nn::Child<nn::RMSNorm> norm;
  nn::Buffer cos, sin;

 private:
  std::shared_ptr<std::optional<RopeTable>> angles;
};

Qwen3::Qwen3(const Qwen3Config& config, const ModelOptions& options) : config_(config) {
  TUTTI_CHECK(config.kv_heads > 0 && config.heads % config.kv_heads == 0,
              "qwen3 {}: {} query heads cannot share {} key/value heads evenly", config.flavor, config.heads,
              config.kv_heads);
  decoder_ = std::make_unique<nn::Child<Decoder>>(this, "model", config, options);
  if (!config.tied_embeddings)
    lm_head_ = std::make_unique<nn::Child<nn::Linear>>(
        this, "lm_head", config.dim, config.vocab,
        nn::LinearOptions{.bias = false, .init = nn::Init::normal(config.init_std)});
  head_VD_ = config.tied_embeddings ? (*decoder_)->embed_tokens->weight : (*lm_head_)->weight;
  if (config.tied_embeddings) register_alias("lm_head.weight", head_VD_);  // published files often hold it once more
  ignore_on_load(".rotary_emb.inv_freq");  // older files hold the frequencies of the angles
}

Qwen3::~Qwen3() = default;

std::string Qwen3::compare_published(PublishedConfig& published) const {
  models::compare_published(config_, published);
  return fmt::format("qwen3 {}", config_.flavor);
}

Tensor Qwen3::forward(const TokenBatch& batch, const ForwardOptions& options) const {
  const Tensor x_TD = (*decoder_)(batch, options);
  const ModuleScope module("lm_head");
  return matmul(x_TD, transpose(head_VD_, 0, 1), {.out_dtype = DType::f32});
}

Tensor Qwen3::losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options) const {
  if (options.loss_max_bytes == 0) {
    const Tensor logits = forward(batch, options);
    const ModuleScope module("loss");
    return cross_entropy(logits, labels);
  }
  const Tensor x_TD = (*decoder_)(batch, options);
  const ModuleScope module("loss");
  return linear_cross_entropy(x_TD, head_VD_, labels,
                              {.reduction = LossReduction::none, .max_bytes = options.loss_max_bytes});
}

const ModelFamily kQwen3Family = {
    .name = "qwen3",
    .flavors = qwen3_flavors,
    .make = [](std::string_view flavor, const ModelOptions& options) -> std::unique_ptr<LanguageModel> {
      return std::make_unique<Qwen3>(qwen3_config(flavor), options);
    },
};

}  // namespace tutti::models
