#include "tutti/models/gguf_tensors.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/models/family.h"
#include "tutti/models/gguf_names.h"
#include "tutti/models/stacked_experts.h"

namespace tutti::models {

int64_t GgufTensor::nbytes() const {
  const int64_t numel = numel_of(entry.sizes);
  return entry.blocks ? block_nbytes(*entry.blocks, numel).value_or(0) : numel * itemsize(entry.dtype);
}

std::vector<GgufTensor> gguf_tensors(const DecoderConfig& config, const std::vector<SourceWeight>& weights,
                                     GgufFormats& formats) {
  const bool stacks = family_named(config.family).stacks_experts;
  std::vector<GgufTensor> tensors;
  for (const SourceWeight& weight : weights) {
    const std::string of_expert = stacks && weight.holds_experts() ? weight.name : "";
    if (of_expert.ends_with(".w3")) continue;  // with the first
    const bool is_first = of_expert.ends_with(".w1");
    const std::string layer = weight.name.substr(0, weight.name.rfind(".experts."));
    const std::optional<std::string> name = gguf_name_of(
        is_first ? fmt::format("{}{}", layer, kStackedGateUp) : weight.name, config.layers.front().output_norms);
    TUTTI_ASSERT(name.has_value(), "{} has no name in GGUF files", weight.name);
    GgufTensor tensor{.entry = {.name = *name, .sizes = weight.sizes}, .weight = &weight};
    if (is_first) {
      const std::string second = layer + ".experts.w3";
      tensor.second =
          &*std::find_if(weights.begin(), weights.end(), [&](const SourceWeight& w) { return w.name == second; });
      tensor.entry.sizes[1] *= 2;
    }
    const BlockFormat format = formats.choose(*name, weight);
    if (const std::optional<DType> dtype = row_of(format).dtype) tensor.entry.dtype = *dtype;
    else tensor.entry.blocks = format;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace tutti::models
