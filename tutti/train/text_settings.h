// What a user may set of texts and of the model that writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tutti/core/dtype.h"
#include "tutti/generate/sampling.h"
#include "tutti/train/quantize_settings.h"

namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::train {

// Settings that are not set are those of the model's files, or those used for sample.txt.
struct SamplingSettings {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  std::optional<generate::SamplingOrder> order;

  generate::SamplingOptions over(generate::SamplingOptions defaults) const;
};

struct TextModelOptions {
  int64_t context = 0;       // tokens of a text; 0: the sequence length of a run, kUsualContext of a published model
  DType dtype = DType::f32;  // in which a published model computes: f32 or bf16
  bool compile = false;      // its forwards
  std::optional<DType> cache_dtype = {};  // of cached keys and values, as EngineOptions::cache_dtype
  bool keep_blocks = false;        // a published model computes with its quantized weights as they are (ready_model.h)
  QuantizeSettings quantize = {};  // not for ranks that divide the model
  // Ranks that divide the model, which make the same call: over all of them its products, its experts, or both.
  comm::ProcessGroup* group = nullptr;  // null: one rank
  bool divides_products = true, divides_experts = false;
  bool is_divided() const;
};
inline constexpr int64_t kUsualContext = 4096;

// UsageError when so many ranks cannot divide the model, before any is started.
void check_text_model_ranks(const std::filesystem::path& path, int64_t ranks, const TextModelOptions& options);

}  // namespace tutti::train
