#include "tutti/models/gguf_keys.h"

namespace tutti::models {

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
