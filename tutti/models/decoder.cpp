#include "tutti/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tutti/autograd/checkpoint.h"
#include "tutti/core/error.h"
#include "tutti/models/decoder_block.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/slice.h"
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

// What each layer reads of a token besides x: a table of all layers, and a projection of the scaled embeddings.
struct InputsOfLayers {
  InputsOfLayers(nn::Module* stack, const DecoderConfig& c)
      : layers(std::ssize(c.layers)),
        features(c.per_layer_inputs),
        embed_tokens_per_layer(stack, "embed_tokens_per_layer", c.vocab, layers * features,
                               nn::EmbeddingOptions{.init = nn::Init::normal(c.init_std)}),
        per_layer_model_projection(stack, "per_layer_model_projection", c.dim, layers * features,
                                   nn::LinearOptions{.bias = false, .init = nn::Init::normal(c.init_std)}),
        per_layer_projection_norm(stack, "per_layer_projection_norm", features, nn::RMSNormOptions{.eps = c.norm_eps}),
        projection_scale(1 / std::sqrt(static_cast<double>(c.dim))) {}

  // The inputs [T, P] of each layer. The weight of the norm is expanded over layers: its gradient sums tokens first.
  std::vector<Tensor> operator()(const Tensor& x_TD, const Tensor& tokens_T) const {
    const Shape sizes{x_TD.size(0), layers, features};
    const Tensor projected_TLP = reshape(mul(per_layer_model_projection(x_TD), projection_scale), sizes);
    const nn::RMSNorm& norm = *per_layer_projection_norm;
    const Tensor normed_TLP = rms_norm(projected_TLP, expand(norm.weight, {layers, features}), norm.eps());
    const Tensor table_TLP =
        mul(reshape(embed_tokens_per_layer(tokens_T), sizes), std::sqrt(static_cast<double>(features)));
    const Tensor all_TLP = mul(add(normed_TLP, table_TLP), std::sqrt(0.5));
    std::vector<Tensor> of_layers;
    for (int64_t i = 0; i < layers; ++i) of_layers.push_back(select(all_TLP, 1, i));
    return of_layers;
  }

  const int64_t layers, features;
  nn::Child<nn::Embedding> embed_tokens_per_layer;
  nn::Child<nn::Linear> per_layer_model_projection;
  nn::Child<nn::RMSNorm> per_layer_projection_norm;
  const double projection_scale;
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
    for (size_t i = 0; i < c.layers.size(); ++i) {
      const AttentionConfig& attention = c.layers[i].attention;
      layers->add(c, c.layers[i], options.dropout);
      angles_of_layer.push_back(angles_for(attention, options.max_positions));
      shared_layers.push_back(attention.shared_layer);
      is_shared.push_back(false);
      if (attention.shared_layer) is_shared[static_cast<size_t>(*attention.shared_layer)] = true;
    }
    if (c.per_layer_inputs > 0) inputs_of_layers = std::make_unique<InputsOfLayers>(this, c);
  }

  Tensor forward(const TokenBatch& batch, const ForwardOptions& options) const {
    const std::vector<TokenPlaces> places = places_of(batch);
    return norm(run(embed(batch), batch, places, 0, layers->size(), options));
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

  // x is what embed() gives where `first` is 0.
  Tensor run(Tensor x_TD, const TokenBatch& batch, const std::vector<TokenPlaces>& places, int64_t first, int64_t end,
             const ForwardOptions& options) const {
    std::vector<Tensor> of_layers;
    if (inputs_of_layers != nullptr) of_layers = (*inputs_of_layers)(first == 0 ? x_TD : embed(batch), batch.tokens);
    std::map<int64_t, KeysAndValues> kept;  // by layer
    for (int64_t i = first; i < end; ++i) {
      const nn::Child<DecoderBlock>& block = (*layers)[i];
      const size_t at_i = static_cast<size_t>(i);
      TokenPlaces at = places[angles_of_layer[at_i]];
      at.layer = i;
      const bool keeps = is_shared[at_i] && at.cache == nullptr;
      if (keeps) at.kept = &kept[i];
      const bool shares = shared_layers[at_i] && at.cache == nullptr, has_input = !of_layers.empty();
      std::vector<Tensor> inputs{x_TD};
      if (has_input) inputs.push_back(of_layers[at_i]);
      if (shares) {
        const KeysAndValues& shared = kept.at(*shared_layers[at_i]);
        inputs.insert(inputs.end(), {shared.keys_TKE, shared.values_TKE});
      }
      const auto run_one = [&block, at, shares, has_input](std::span<const Tensor> given) {
        BlockInputs beside;
        if (has_input) beside.per_layer_TP = given[1];
        if (shares) beside.shared = {given[given.size() - 2], given[given.size() - 1]};
        return block(given[0], at, beside);
      };
      // A checkpoint has one result, so that a block whose keys others read as well is recorded as it is.
      x_TD = options.checkpoint_blocks && !keeps ? checkpoint(run_one, inputs) : run_one(inputs);
    }
    return x_TD;
  }

  // UsageError where blocks of the span share keys and values of one before it.
  void check_span(const DecoderConfig& c, int64_t first, int64_t end) const {
    for (int64_t i = first; i < end; ++i) {
      const std::optional<int64_t>& shared = shared_layers[static_cast<size_t>(i)];
      TUTTI_CHECK(!shared || *shared >= first,
                  "blocks {} to {} of {}: block {} reads the keys and values of block {}; expected a span that begins "
                  "at it or before",
                  first, end, c.name(), i, *shared);
    }
  }

  nn::Child<nn::Embedding> embed_tokens;
  nn::Child<nn::ModuleList<DecoderBlock>> layers;
  nn::Child<nn::RMSNorm> norm;
  const double embedding_scale;
  std::unique_ptr<InputsOfLayers> inputs_of_layers;  // null: layers read x alone
  std::vector<Angles> angles;
  // By layer: the index of its angles, the layer whose keys it reads, and whether others read its own.
  std::vector<size_t> angles_of_layer;
  std::vector<std::optional<int64_t>> shared_layers;
  std::vector<bool> is_shared;

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
  ignore_on_load(".rotary_emb.inv_freq");              // older files hold the frequencies of the angles
  for (size_t i = 0; i < config.layers.size(); ++i) {  // and some those of keys that a layer does not compute
    if (!config.layers[i].attention.shared_layer) continue;
    for (const char* part : {"k_proj", "v_proj", "k_norm"})
      ignore_on_load(fmt::format("model.layers.{}.self_attn.{}.weight", i, part));
  }
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
  stack.check_span(config_, first, end);
  return stack.run(x_TD, batch, stack.places_of(batch), first, end, options);
}

Tensor Decoder::head_logits(const Tensor& x_TD) const { return logits_of((*stack_)->norm(x_TD)); }

Tensor Decoder::head_losses(const Tensor& x_TD, const Tensor& labels, const ForwardOptions& options) const {
  return losses_of((*stack_)->norm(x_TD), labels, options);
}

Tensor Decoder::logits_of(const Tensor& x_TD) const {
  const ModuleScope module("lm_head");
  const Tensor heard_TD = lm_head_ ? nn::hooked_input(**lm_head_, x_TD) : x_TD;
  const Tensor logits_TV = head().product(heard_TD, DType::f32);
  const double cap = config_.logits_cap;
  return cap == 0 ? logits_TV : mul(tanh(truediv(logits_TV, cap)), cap);
}

Tensor Decoder::losses_of(const Tensor& x_TD, const Tensor& labels, const ForwardOptions& options) const {
  if (options.loss_max_bytes != 0) {
    const ModuleScope module("loss");
    const Tensor head_VD = head().matrix();
    if (head_VD.defined())
      return linear_cross_entropy(
          lm_head_ ? nn::hooked_input(**lm_head_, x_TD) : x_TD, head_VD, labels,
          {.reduction = LossReduction::none, .softcap = config_.logits_cap, .max_bytes = options.loss_max_bytes});
  }
  const Tensor logits = logits_of(x_TD);
  const ModuleScope module("loss");
  return cross_entropy(logits, labels);
}

}  // namespace tutti::models
