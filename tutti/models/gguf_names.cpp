#include "tutti/models/gguf_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/rotary_rows.h"
#include "tutti/models/stacked_experts.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"

namespace tutti::models {
namespace {

struct Pair {
  std::string_view gguf, name;
};
constexpr std::array kWhole{Pair{"token_embd.weight", "model.embed_tokens.weight"},
                            Pair{"output_norm.weight", "model.norm.weight"},
                            Pair{"output.weight", "lm_head.weight"},
                            Pair{"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
                            Pair{"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
                            Pair{"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"}};
// These parts of a layer have a ".weight", and some a ".bias".
constexpr std::array kParts{Pair{"attn_norm", "input_layernorm"},
                            Pair{"attn_q", "self_attn.q_proj"},
                            Pair{"attn_k", "self_attn.k_proj"},
                            Pair{"attn_v", "self_attn.v_proj"},
                            Pair{"attn_output", "self_attn.o_proj"},
                            Pair{"attn_q_norm", "self_attn.q_norm"},
                            Pair{"attn_k_norm", "self_attn.k_norm"},
                            Pair{"ffn_gate", "mlp.gate_proj"},
                            Pair{"ffn_up", "mlp.up_proj"},
                            Pair{"ffn_down", "mlp.down_proj"},
                            Pair{"ffn_gate_inp", "mlp.gate"},
                            Pair{"inp_gate", "per_layer_input_gate"},
                            Pair{"proj", "per_layer_projection"},
                            Pair{"post_norm", "post_per_layer_input_norm"},
                            Pair{"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                            Pair{"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                            Pair{"post_ffw_norm_2", "post_feedforward_layernorm_2"}};
// The other norms of layers without norms of outputs, and of those with them.
constexpr std::array kTwoNorms{Pair{"ffn_norm", "post_attention_layernorm"}};
constexpr std::array kFourNorms{Pair{"post_attention_norm", "post_attention_layernorm"},
                                Pair{"ffn_norm", "pre_feedforward_layernorm"},
                                Pair{"post_ffw_norm", "post_feedforward_layernorm"}};
// These have whole names of their own, and experts beside a dense feed-forward do.
constexpr std::array kInLayer{Pair{"layer_output_scale.weight", "layer_scalar"}};
constexpr std::array kBeside{Pair{"ffn_gate_inp.weight", "moe.gate.weight"},
                             Pair{"ffn_gate_inp.scale", "moe.gate.scale"},
                             Pair{"ffn_down_exps.scale", "moe.gate.per_expert_scale"},
                             Pair{"ffn_gate_exps.weight", "moe.experts.w1"},
                             Pair{"ffn_down_exps.weight", "moe.experts.w2"},
                             Pair{"ffn_up_exps.weight", "moe.experts.w3"},
                             Pair{"ffn_gate_up_exps.weight", "moe.experts.gate_up_proj"}};
// These tensors of a layer hold the weights of all experts.
constexpr std::array kExperts{Pair{"ffn_gate_exps.weight", "mlp.experts.w1"},
                              Pair{"ffn_down_exps.weight", "mlp.experts.w2"},
                              Pair{"ffn_up_exps.weight", "mlp.experts.w3"}};
constexpr std::string_view kBlock = "blk.", kLayer = "model.layers.", kRouterBias = "gate.expert_bias";
constexpr std::string_view kFirstExpertWeight = "experts.w1";
// The divisors of rotary angles are part of the description.
constexpr std::string_view kDescribed = "rope_freqs.weight";

struct InLayer {
  int64_t layer;
  std::string_view rest;
};
// "blk.3.attn_q.weight" -> {3, "attn_q.weight"}.
std::optional<InLayer> in_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const size_t digits = static_cast<size_t>(end - name.data());
  const bool is_plain = digits == 1 || (digits > 1 && name[0] != '0');  // "00" would be another name of layer 0
  if (error != std::errc() || layer < 0 || !is_plain || digits == name.size() || name[digits] != '.')
    return std::nullopt;
  return InLayer{layer, name.substr(digits + 1)};
}

std::optional<std::string> renamed(std::string_view name, std::string_view Pair::* from, std::string_view Pair::* to,
                                   std::string_view from_layer, std::string_view to_layer, bool output_norms,
                                   bool experts_beside) {
  for (const Pair& pair : kWhole) {
    if (pair.*from == name) return std::string(pair.*to);
  }
  const std::optional<InLayer> at = in_layer(name, from_layer);
  if (!at) return std::nullopt;
  const auto in = [&](std::string_view rest) { return fmt::format("{}{}.{}", to_layer, at->layer, rest); };
  const std::span<const Pair> beside = experts_beside ? std::span<const Pair>(kBeside) : std::span<const Pair>();
  for (const std::span<const Pair> pairs : {std::span<const Pair>(kInLayer), beside, std::span<const Pair>(kExperts)}) {
    for (const Pair& pair : pairs) {
      if (pair.*from == at->rest) return in(pair.*to);
    }
  }
  const size_t dot = at->rest.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view part = at->rest.substr(0, dot), kind = at->rest.substr(dot + 1);
  if (kind != "weight" && kind != "bias") return std::nullopt;
  const std::span<const Pair> norms =
      output_norms ? std::span<const Pair>(kFourNorms) : std::span<const Pair>(kTwoNorms);
  for (const std::span<const Pair> pairs : {std::span<const Pair>(kParts), norms}) {
    for (const Pair& pair : pairs) {
      if (pair.*from == part) return in(fmt::format("{}.{}", pair.*to, kind));
    }
  }
  return std::nullopt;
}

class DecoderTensors final : public ModelFileReader {
 public:
  DecoderTensors(const ModelFile& gguf, const DecoderConfig& config, bool is_pair_layout) : gguf_(gguf) {
    for (ModelTensor entry : gguf.entries()) {
      if (entry.name == kDescribed) continue;
      const LayerConfig& layer = config.layers.front();
      const std::string name =
          name_of_gguf(entry.name, layer.output_norms, layer.has_experts_beside()).value_or(entry.name);
      add({.name_in_file = entry.name,
           .heads = is_pair_layout ? heads_of(name, config) : 0,
           .is_one_more = config.zero_centered_norms && is_norm(name)},
          entry, name);
      const std::optional<InLayer> at = in_layer(name, kLayer);
      if (!at || !at->rest.ends_with(kFirstExpertWeight) || entry.sizes.empty()) continue;
      ModelTensor bias{.name = "", .sizes = {entry.sizes[0]}, .dtype = DType::f32};
      const std::string_view mixture = at->rest.substr(0, at->rest.size() - kFirstExpertWeight.size());
      add({}, bias, fmt::format("{}{}.{}{}", kLayer, at->layer, mixture, kRouterBias));
    }
  }

  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return gguf_.metadata(); }

  Tensor tensor(std::string_view name) const override {
    const Source& source = sources_.at(std::string(name));
    if (source.name_in_file.empty()) return zeros({entries_[source.entry].sizes[0]});
    const Tensor stored = gguf_.tensor(source.name_in_file);
    if (source.is_one_more) return sub(cast(stored, DType::f32), 1.0);
    return source.heads == 0 ? stored : in_half_layout(source, stored);
  }

  Tensor blocks(std::string_view name) const override {
    const Source& source = sources_.at(std::string(name));
    if (source.name_in_file.empty() || source.is_one_more) return {};
    const Tensor stored = gguf_.blocks(source.name_in_file);
    return source.heads == 0 || !stored.defined() ? stored : in_half_layout(source, stored);
  }

 private:
  struct Source {
    std::string name_in_file = "";  // "": zeros
    int64_t heads = 0;              // whose rows are in pair layout; 0: none
    bool is_one_more = false;       // the file holds 1 + weight
    size_t entry = 0;
  };

  Tensor in_half_layout(const Source& source, const Tensor& stored) const {
    const Tensor rows = to_contiguous(stored), turned = Tensor::empty(rows.extents(), rows.dtype());
    const int64_t row_nbytes = rows.numel() / rows.extent(0) * itemsize(rows.dtype());
    const size_t nbytes = static_cast<size_t>(rows.extent(0) * row_nbytes);
    io::rotary_rows_to_half_layout({static_cast<const std::byte*>(rows.raw_data()), nbytes},
                                   {static_cast<std::byte*>(turned.raw_data()), nbytes}, source.heads, row_nbytes);
    forget_pages(gguf_.entry(source.name_in_file).bytes);
    return turned;
  }

  static int64_t heads_of(std::string_view name, const DecoderConfig& config) {
    const std::optional<InLayer> at = in_layer(name, kLayer);
    if (!at || at->layer >= std::ssize(config.layers)) return 0;
    const AttentionConfig& a = config.layers[static_cast<size_t>(at->layer)].attention;
    if (at->rest.starts_with("self_attn.q_proj.")) return a.heads;
    return at->rest.starts_with("self_attn.k_proj.") ? a.kv_heads : 0;
  }

  void add(Source source, ModelTensor entry, const std::string& name) {
    if (source.heads > 0 || source.is_one_more) entry.bytes = {};  // those of the file are others
    source.entry = entries_.size();
    const auto [known, is_new] = sources_.emplace(name, std::move(source));
    TUTTI_CHECK(is_new, "{}: {} and {} are one tensor, {}, under two names", gguf_.path(), known->second.name_in_file,
                entry.name, name);
    entry.name = name;
    entries_.push_back(std::move(entry));
  }

  const ModelFile gguf_;
  std::vector<ModelTensor> entries_;
  std::map<std::string, Source> sources_;
};

}  // namespace

std::optional<std::string> name_of_gguf(std::string_view gguf, bool output_norms, bool experts_beside) {
  return renamed(gguf, &Pair::gguf, &Pair::name, kBlock, kLayer, output_norms, experts_beside);
}
std::optional<std::string> gguf_name_of(std::string_view name, bool output_norms) {
  return renamed(name, &Pair::name, &Pair::gguf, kLayer, kBlock, output_norms, true);
}

bool is_norm(std::string_view name) { return name.ends_with("norm.weight"); }

ModelFile decoder_tensors_of_gguf(const ModelFile& gguf, const DecoderConfig& config, bool is_pair_layout) {
  return split_stacked_experts(
      {gguf.path(), gguf.format(), std::make_unique<DecoderTensors>(gguf, config, is_pair_layout)});
}

}  // namespace tutti::models
