#include "tutti/models/decoder.h"

#include <algorithm>
#include <optional>

#include "tutti/autograd/checkpoint.h"
#include "tutti/core/error.h"
#include "tutti/models/decoder_block.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::models {
namespace {

// The angles of all positions for the layers that turn alike, computed when they are first read.
struct Angles {
  RopeConfig rope;
  int64_t head_dim;
  nn::Buffer cos, sin;
};

}  // namespace

struct Decoder::Stack final : nn::Module {
  Stack(const DecoderConfig& c, const ModelOptions& options)
      : embed_tokens(this, "embed_tokens", c.vocab, c.dim, nn::EmbeddingOptions{.init = nn::Init::normal(c.init_std)}),
        layers(this, "layers"),
        norm(this, "norm", c.dim,
             nn::RMSNormOptions{.eps = c.norm_eps,
                                .form = c.zero_centered_norms ? NormWeight::zero_centered : NormWeight::factor}),
        embedding_scale(c.embedding_scale) {
    for (const LayerConfig& layer : c.layers) {
      layers->add(c, layer, options.dropout);
      angles_of_layer.push_back(angles_for(layer.attention, options.max_positions));
    }
  }

  Tensor forward(const TokenBatch& batch, const ForwardOptions& options) const {
    const std::vector<TokenPlaces> places = places_of(batch);
    return norm(run(embed(batch), places, 0, layers->size(), options));
  }

  Tensor embed(const TokenBatch& batch) const {
    const Tensor x_TD = embed_tokens(batch.tokens);
    return embedding_scale == 1 ? x_TD : mul(x_TD, embedding_scale);
  }

  // By the index of the angles.
  std::vector<TokenPlaces> places_of(const TokenBatch& batch) const {
    std::vector<TokenPlaces> places;
    const SymInt B = batch.rows, S = floordiv(batch.tokens.size(0), B);
    for (const Angles& a : angles) {
      const Tensor cosines = index_select(a.cos, 0, batch.positions);
      const Tensor sines = index_select(a.sin, 0, batch.positions);
      const Tensor first_key = places.empty() ? reshape(batch.first_key, {B, S}) : places[0].first_key_BS;
      places.push_back({cosines, sines, first_key, batch.cache});
    }
    return places;
  }

  Tensor run(Tensor x_TD, const std::vector<TokenPlaces>& places, int64_t first, int64_t end,
             const ForwardOptions& options) const {
    for (int64_t i = first; i < end; ++i) {
      const nn::Child<DecoderBlock>& block = (*layers)[i];
      TokenPlaces at = places[angles_of_layer[static_cast<size_t>(i)]];
      at.layer = i;
      const auto run_one = [&block, at](std::span<const Tensor> inputs) { return block(inputs[0], at); };
      x_TD = options.checkpoint_blocks ? checkpoint(run_one, std::span(&x_TD, 1)) : run_one(std::span(&x_TD, 1));
    }
    return x_TD;
  }

  nn::Child<nn::Embedding> embed_tokens;
  nn::Child<nn::ModuleList<DecoderBlock>> layers;
  nn::Child<nn::RMSNorm> norm;
  const double embedding_scale;
  std::vector<Angles> angles;
  std::vector<size_t> angles_of_layer;

 private:
  size_t angles_for(const AttentionConfig& a, int64_t positions) {
    const auto found = std::find_if(angles.begin(), angles.end(), [&](const Angles& known) {
      return known.rope == a.rope && known.head_dim == a.head_dim;
    });
    if (found != angles.end()) return static_cast<size_t>(found - angles.begin());
    const auto made = std::make_shared<std::optional<RopeTable>>();
    const auto table = [=, rope = a.rope, head_dim = a.head_dim]() -> const RopeTable& {
      if (!made->has_value()) *made = rope_table(rope, positions, head_dim);
      return **made;
    };
    const std::string number = angles.empty() ? "" : fmt::format("_{}", angles.size());
    angles.push_back({a.rope, a.head_dim, register_buffer("rope_cos" + number, [table] { return table().cos; }),
                      register_buffer("rope_sin" + number, [table] { return table().sin; })});
    return angles.size() - 1;
  }
};

Decoder::Decoder(const DecoderConfig& config, const ModelOptions& options) : config_(config) {
  validate(config);
  stack_ = std::make_unique<nn::Child<Stack>>(this, "model", config, options);
  if (config.tied_embeddings) {
    const nn::Parameter& table = (*stack_)->embed_tokens->weight;
    tied_head_ = std::make_unique<nn::DenseOperand>(table);
    register_alias("lm_head.weight", table);  // published files often hold it once more
  } else {
    lm_head_ = std::make_unique<nn::Child<nn::Linear>>(
        this, "lm_head", config.dim, config.vocab,
        nn::LinearOptions{.bias = false, .init = nn::Init::normal(config.init_std)});
  }
  ignore_on_load(".rotary_emb.inv_freq");  // older files hold the frequencies of the angles
}

Decoder::~Decoder() = default;

Tensor Decoder::forward(const TokenBatch& batch, const ForwardOptions& options) const {
  return logits_of((*stack_)(batch, options));
}

Tensor Decoder::losses(const TokenBatch& batch, const Tensor& labels, const ForwardOptions& options) const {
  return losses_of((*stack_)(batch, options), labels, options);
}

Tensor Decoder::embed(const TokenBatch& batch) const { return (*stack_)->embed(batch); }

Tensor Decoder::blocks(const Tensor& x_TD, const TokenBatch& batch, int64_t first, int64_t end,
                       const ForwardOptions& options) const {
  TUTTI_CHECK(0 <= first && first <= end && end <= std::ssize(config_.layers),
              "blocks {} to {} of {}, which has {}; expected a span of them", first, end, config_.name(),
              config_.layers.size());
  const Stack& stack = **stack_;
  return stack.run(x_TD, stack.places_of(batch), first, end, options);
}

Tensor Decoder::head_logits(const Tensor& x_TD) const { return logits_of((*stack_)->norm(x_TD)); }

Tensor Decoder::head_losses(const Tensor& x_TD, const Tensor& labels, const ForwardOptions& options) const {
  return losses_of((*stack_)->norm(x_TD), labels, options);
}

Tensor Decoder::logits_of(const Tensor& x_TD) const {
  const ModuleScope module("lm_head");
  const Tensor logits_TV = head().product(x_TD, DType::f32);
  const double cap = config_.logits_cap;
  return cap == 0 ? logits_TV : mul(tanh(truediv(logits_TV, cap)), cap);
}

Tensor Decoder::losses_of(const Tensor& x_TD, const Tensor& labels, const ForwardOptions& options) const {
  if (options.loss_max_bytes != 0) {
    const ModuleScope module("loss");
    const Tensor head_VD = head().matrix();
    if (head_VD.defined())
      return linear_cross_entropy(
          x_TD, head_VD, labels,
          {.reduction = LossReduction::none, .softcap = config_.logits_cap, .max_bytes = options.loss_max_bytes});
  }
  const Tensor logits = logits_of(x_TD);
  const ModuleScope module("loss");
  return cross_entropy(logits, labels);
}

}  // namespace tutti::models
