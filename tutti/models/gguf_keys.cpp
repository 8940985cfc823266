#include "tutti/models/gguf_keys.h"

#include <algorithm>

namespace tutti::models {

std::vector<int64_t> GgufKeys::of_layers(std::string_view name, size_t layers,
                                         std::optional<int64_t> by_default) const {
  const std::optional<MetadataField> field = find(name);
  if (!field || !field->is_array())
    return std::vector<int64_t>(layers, field || !by_default ? whole(name) : *by_default);
  std::vector<int64_t> values = field->wholes(1, kMost);
  if (values.size() != layers) field->fail("has {} elements; expected {}, one for each layer", values.size(), layers);
  return values;
}

void GgufKeyWriter::of_layers(std::string_view name, const std::vector<int64_t>& values) {
  if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; }))
    return whole(name, values[0]);
  metadata_.set(full(name), std::vector<int32_t>(values.begin(), values.end()));
}

std::vector<bool> GgufKeys::sliding_layers(size_t layers, int64_t period) const {
  const std::optional<MetadataField> field = find("attention.sliding_window_pattern");
  if (field && field->is_array()) {
    std::vector<bool> slides = field->booleans();
    if (slides.size() != layers) field->fail("has {} elements; expected {}, one for each layer", slides.size(), layers);
    return slides;
  }
  const int64_t every = field ? field->whole(1, kMost) : period;
  std::vector<bool> slides(layers);
  for (size_t i = 0; i < layers; ++i) slides[i] = static_cast<int64_t>(i) % every != every - 1;
  return slides;
}

}  // namespace tutti::models
