// Flags of verbs that write texts.
#pragma once

#include "tutti/train/text_settings.h"

namespace CLI {
class App;
}

namespace tutti::cli {

// --temperature, --top-k, --top-p, --min-p, the penalties, --seed and --sampling-order; what they set is in `settings`
// when the verb runs.
void add_sampling_flags(CLI::App& verb, train::SamplingSettings& settings);

// --context, --dtype, --kv-cache-dtype, --compile and --quantized.
void add_model_flags(CLI::App& verb, train::TextModelOptions& model);

// --kv-cache-dtype alone.
void add_cache_dtype_flag(CLI::App& verb, std::optional<DType>& dtype);

}  // namespace tutti::cli
