#include "tutti/models/gguf_formats.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

constexpr std::string_view kHeadTensor = "output.weight", kInLayers = "blk.", kWeightEnd = ".weight",
                           kExpertsEnd = "_exps.weight";
// They are the head where there is no other.
constexpr std::string_view kEmbeddings[] = {"token_embd.weight", "per_layer_token_embd.weight"};
// llama.cpp leaves it as it is.
constexpr std::string_view kNeverQuantized = "per_layer_model_proj.weight";

// Which layers or models a rule is about.
enum class When { near_the_ends, of_80_layers, of_8_experts };
struct Rule {
  When when;
  std::string_view part;  // of a layer
  std::optional<BlockFormat> from;
  BlockFormat to;
};
// In the order in which they apply.
constexpr Rule kRules[] = {
    {When::near_the_ends, "attn_v", BlockFormat::q4_k, BlockFormat::q6_k},
    {When::near_the_ends, "attn_v", BlockFormat::q5_k, BlockFormat::q6_k},
    {When::near_the_ends, "ffn_down", BlockFormat::q4_k, BlockFormat::q6_k},
    {When::near_the_ends, "ffn_down", BlockFormat::q5_k, BlockFormat::q6_k},
    {When::of_80_layers, "attn_v", BlockFormat::q4_k, BlockFormat::q5_k},
    {When::of_8_experts, "attn_v", std::nullopt, BlockFormat::q8_0},
    {When::of_8_experts, "attn_k", std::nullopt, BlockFormat::q8_0},
    {When::of_8_experts, "attn_output", BlockFormat::q4_k, BlockFormat::q5_k},
};

// The format of rows that are no whole blocks of another.
constexpr std::pair<BlockFormat, BlockFormat> kSmallerBlocks[] = {{BlockFormat::q4_k, BlockFormat::q5_0},
                                                                  {BlockFormat::q5_k, BlockFormat::q5_1},
                                                                  {BlockFormat::q6_k, BlockFormat::q8_0}};

// The first eighth of n layers, the last eighth, and every third between them.
bool is_near_the_ends(int64_t i, int64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

// Models of 70 billion parameters are such; their projections of values are small beside the others.
bool has_80_layers_of_shared_values(const DecoderConfig& config) {
  const AttentionConfig& a = config.layers.front().attention;
  return config.layers.size() == 80 && a.kv_heads < a.heads;
}

bool has_8_experts(const DecoderConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
    const FeedForwardConfig* mixture = layer.mixture();
    return mixture != nullptr && mixture->experts == 8;
  });
}

BlockFormat that_fits(BlockFormat format, int64_t row) {
  if (row % row_of(format).elements == 0) return format;
  for (const auto& [larger, smaller] : kSmallerBlocks)
    if (larger == format && row % row_of(smaller).elements == 0) return smaller;
  return BlockFormat::f16;
}

}  // namespace

GgufFormats::GgufFormats(const DecoderConfig& config, std::optional<FileType> type)
    : config_(config), type_(type ? &row_of(*type) : nullptr) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const AttentionConfig& a = config.layers[i].attention;
    if (!a.keys_are_values && !a.shared_layer) layers_with_values_.push_back(static_cast<int64_t>(i));
  }
}

BlockFormat GgufFormats::wanted(std::string_view name) const {
  const bool is_embedding = std::find(std::begin(kEmbeddings), std::end(kEmbeddings), name) != std::end(kEmbeddings);
  if (name == kHeadTensor || (is_embedding && config_.tied_embeddings)) return type_->head;
  BlockFormat format = type_->matrices;
  if (!type_->is_quantized() || !name.starts_with(kInLayers)) return format;
  name.remove_prefix(kInLayers.size());
  int64_t layer = 0;
  std::from_chars(name.data(), name.data() + name.size(), layer);
  name.remove_prefix(name.find('.') + 1);
  for (const std::string_view end : {kExpertsEnd, kWeightEnd}) {
    if (!name.ends_with(end)) continue;
    name.remove_suffix(end.size());
    break;
  }
  const auto applies = [&](const Rule& rule) {
    if (rule.when == When::of_80_layers) return has_80_layers_of_shared_values(config_);
    if (rule.when == When::of_8_experts) return has_8_experts(config_);
    if (rule.part != "attn_v") return is_near_the_ends(layer, std::ssize(config_.layers));
    // Layers without the projection are not counted.
    const auto at = std::lower_bound(layers_with_values_.begin(), layers_with_values_.end(), layer);
    return is_near_the_ends(at - layers_with_values_.begin(), std::ssize(layers_with_values_));
  };
  for (const Rule& rule : kRules)
    if (rule.part == name && rule.from.value_or(format) == format && applies(rule)) format = rule.to;
  return format;
}

BlockFormat GgufFormats::choose(std::string_view name, const SourceWeight& weight) {
  if (weight.is_f32_in_gguf()) return BlockFormat::f32;
  const std::optional<BlockFormat> stored = weight.blocks ? weight.blocks : block_format_of(weight.dtype);
  if (type_ == nullptr || (type_->is_quantized() && name == kNeverQuantized)) {
    TUTTI_CHECK(weight.blocks || (stored && file_type_of(weight.dtype)),
                "{} is {}, which llama.cpp does not compute with; name a type, such as f32, bf16, f16 or q8_0",
                weight.name, name_of(weight.dtype));
    return *stored;
  }
  const BlockFormat asked = wanted(name), format = that_fits(asked, weight.sizes.back());
  if (format != asked) smaller_[{asked, format}].emplace_back(name);
  if (weight.blocks && stored != format) quantized_twice_ += type_->is_quantized();
  return format;
}

std::vector<std::string> GgufFormats::notes() const {
  constexpr size_t kShown = 3;
  std::vector<std::string> notes;
  for (const auto& [formats, names] : smaller_) {
    std::string list;
    for (size_t i = 0; i < std::min(kShown, names.size()); ++i) list += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > kShown) list += fmt::format(" and {} more", names.size() - kShown);
    notes.push_back(fmt::format("{} of the matrices {} {} instead of {}, as rows are no whole blocks of {}: {}.",
                                names.size(), names.size() == 1 ? "is" : "are", name_of(formats.second),
                                name_of(formats.first), row_of(formats.first).elements, list));
  }
  if (quantized_twice_ > 0)
    notes.push_back(
        fmt::format("{} of the matrices {} rounded for the second time: the source has them in other "
                    "quantized formats. Convert the model that was not quantized, if there is one.",
                    quantized_twice_, quantized_twice_ == 1 ? "is" : "are"));
  return notes;
}

}  // namespace tutti::models
