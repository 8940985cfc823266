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
  int64_t context = 1024;                 // tokens of a text
  DType dtype = DType::f32;               // in which the model computes: f32 or bf16
  std::optional<DType> cache_dtype = {};  // of cached keys and values, as EngineOptions::cache_dtype
};

// The package in a folder that write_packaged_text() has written.
inline constexpr const char* kPackageFile = "decode.tutti";

// Writes a folder with the package of the model's forward and its cache, and with the files of `model` that hold no
// weights: its description, tokenizer and chat template. open_text_model() opens it. UsageError unless `model` is a
// published folder and `folder` does not exist yet; errors of open_published() and package_forward().
PackageReport write_packaged_text(const std::filesystem::path& model, const std::filesystem::path& folder,
                                  const PackageTextOptions& options);

}  // namespace tutti::train
