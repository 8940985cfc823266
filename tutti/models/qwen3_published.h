// Qwen3 and published files: which keys of a config.json change what a model computes, and what Tutti computes.
#pragma once

#include "tutti/models/published_config.h"
#include "tutti/models/qwen3_config.h"

namespace tutti::models {

// Compares every key of a config.json that changes the logits of Qwen3ForCausalLM or Qwen3MoeForCausalLM with `config`.
// Keys that do not (dtypes, token ids, caches, the spread of first weights) are not read. Sliding windows, scaled or
// partial rotary angles, biases, quantized weights and mixtures with dense layers are differences, as no configuration
// has them.
void compare_published(const Qwen3Config& config, PublishedConfig& published);

}  // namespace tutti::models
