// Packages of published models: what `tutti package MODEL TARGET` writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tutti/core/dtype.h"

namespace tutti {
struct PackageReport;
}

namespace tutti::train {

struct PackageTextOptions {
  int64_t context = 1024;                 // tokens of a text; of a run at most those of its sequences
  int64_t texts = 1;                      // that are written at once (generate::PackagedForwardOptions)
  DType dtype = DType::f32;               // in which a published model computes: f32 or bf16
  bool keep_blocks = false;               // compute with quantized weights as they are (ready_model.h)
  std::optional<DType> cache_dtype = {};  // of cached keys and values, as EngineOptions::cache_dtype
};

// Writes a folder with the package of the model's forward and its cache, and with what a published folder of the model
// holds besides weights: description, tokenizer and chat template. Of a run, whose newest checkpoint is packaged, the
// folder has the configuration and the tokenizer. open_text_model() opens either. UsageError unless `model` is a
// published model or a run in strict mode, and `folder` does not exist yet; errors of open_published(),
// open_text_model(), package_forward() and write_published_folder().
PackageReport write_packaged_text(const std::filesystem::path& model, const std::filesystem::path& folder,
                                  const PackageTextOptions& options);

}  // namespace tutti::train
