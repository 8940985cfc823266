#include <algorithm>
#include <cmath>

#include "tutti/models/published_gemma4.h"

namespace tutti::models {
namespace {

constexpr int64_t kSlidingPeriod = 6;
constexpr double kLargestDivisor = 1e29;  // pairs do not turn whose divisor is larger

bool has_window(const LayerConfig& layer) { return layer.attention.window > 0; }

// Divisors that are one number for the first pairs of a head, and for the others so large that they do not turn.
RopeConfig without_divisors(const RopeConfig& rope) {
  const std::vector<double>& d = rope.divisors;
  if (d.empty()) return rope;
  const auto turning = static_cast<size_t>(
      std::find_if(d.begin(), d.end(), [](double divisor) { return divisor > kLargestDivisor; }) - d.begin());
  const bool is_proportional = std::all_of(d.begin(), d.end(), [&](const double& divisor) {
    return static_cast<size_t>(&divisor - d.data()) < turning ? divisor == d[0] : divisor > kLargestDivisor;
  });
  if (rope.type != RopeType::plain || !is_proportional) return rope;
  RopeConfig proportional{.type = RopeType::proportional, .theta = rope.theta, .factor = turning > 0 ? d[0] : 1};
  const double pairs = static_cast<double>(d.size());
  proportional.rotary_factor = static_cast<double>(turning) / pairs;
  if (proportional.rotary_factor * pairs < static_cast<double>(turning))
    proportional.rotary_factor = std::nextafter(proportional.rotary_factor, 1);
  return proportional;
}

// Whether layers that see all keys have a projection of values. All of them or none do, so that where some have it the
// others lack a tensor.
bool have_values(const ModelFile& file, const std::vector<bool>& slide) {
  for (size_t i = 0; i < slide.size(); ++i) {
    if (!slide[i] && file.contains(fmt::format("blk.{}.attn_v.weight", i))) return true;
  }
  return false;
}

void read_expert_keys(const GgufKeys& keys, DecoderConfig& config) {
  const int64_t experts = keys.whole("expert_count", 0);
  if (experts == 0) return;
  for (LayerConfig& layer : config.layers)
    layer.experts_beside = {.hidden_dim = keys.whole("expert_feed_forward_length"),
                            .experts = experts,
                            .active_experts = keys.whole("expert_used_count"),
                            .activation = Activation::gelu_tanh,
                            .scaled_router = true};
}

void read_sharing_keys(const GgufKeys& keys, DecoderConfig& config) {
  const int64_t shared = keys.whole("attention.shared_kv_layers", 0);
  if (shared == 0) return;
  const MetadataField field = *keys.find("attention.shared_kv_layers");
  if (shared >= std::ssize(config.layers))
    field.fail("is {}; expected less than the {} layers", shared, config.layers.size());
  if (const std::optional<size_t> alone = share_keys(shared, config))
    field.fail("is {}, and layer {} has no layer of its kind before them", shared, *alone);
}

}  // namespace

// The shared keys describe the heads and angles of the layers that see all keys.
void read_gemma4_keys(const GgufKeys& keys, DecoderConfig& config) {
  make_gemma4(config);
  config.layer_scalars = keys.file().contains("blk.0.layer_output_scale.weight");
  config.logits_cap = keys.number("final_logit_softcapping", 0);
  config.per_layer_inputs = keys.whole("embedding_length_per_layer_input", 0);
  const std::vector<bool> slide = keys.sliding_layers(config.layers.size(), kSlidingPeriod);
  const int64_t window = keys.whole("attention.sliding_window"), head_dim = keys.whole("attention.key_length_swa");
  keys.expect("attention.value_length_swa", static_cast<double>(head_dim));
  keys.expect("rope.dimension_count_swa", static_cast<double>(head_dim));
  const double theta = keys.positive("rope.freq_base_swa", gemma4_sliding_rope().theta);
  const bool full_have_values = have_values(keys.file(), slide);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AttentionConfig& a = config.layers[i].attention;
    a.window = slide[i] ? window : 0;
    a.rope = slide[i] ? RopeConfig{.theta = theta} : without_divisors(a.rope);
    if (slide[i]) a.head_dim = head_dim;
    a.keys_are_values = !slide[i] && !full_have_values;
  }
  read_sharing_keys(keys, config);
  read_expert_keys(keys, config);
}

void write_gemma4_keys(const DecoderConfig& config, GgufKeyWriter& keys) {
  const auto of_kind = [&](bool that_slides) -> const AttentionConfig& {
    const auto found = std::find_if(config.layers.begin(), config.layers.end(),
                                    [&](const LayerConfig& layer) { return has_window(layer) == that_slides; });
    return (found == config.layers.end() ? config.layers.front() : *found).attention;
  };
  const AttentionConfig &full = of_kind(false), &sliding = of_kind(true);
  std::vector<bool> slide;
  for (const LayerConfig& layer : config.layers) slide.push_back(has_window(layer));
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    keys.whole(key, full.head_dim);
  for (const char* key : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
    keys.whole(key, sliding.head_dim);
  keys.number("rope.freq_base_swa", sliding.rope.theta);
  // Readers want a window, also where no layer has one.
  keys.whole("attention.sliding_window", std::max<int64_t>(largest_window(config), 1));
  keys.flags("attention.sliding_window_pattern", slide);
  keys.whole("attention.shared_kv_layers", layers_that_share_keys(config));
  keys.whole("embedding_length_per_layer_input", config.per_layer_inputs);
  if (config.logits_cap > 0) keys.number("final_logit_softcapping", config.logits_cap);
  const FeedForwardConfig& experts = config.layers.front().experts_beside;
  if (experts.experts == 0) return;
  keys.whole("expert_count", experts.experts);
  keys.whole("expert_used_count", experts.active_experts);
  keys.whole("expert_feed_forward_length", experts.hidden_dim);
}

}  // namespace tutti::models
