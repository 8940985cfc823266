// Published models written with weights as codes.
#pragma once

#include <filesystem>

#include "tutti/models/published_model.h"
#include "tutti/models/written_model.h"
#include "tutti/train/quantize_settings.h"

namespace tutti::train {

// Quantizes the linear layers of a model (quantize_model.h) and writes it as a folder of Hugging Face's
// (models/published_folder.h), in which the entries of their codes (nn/code_entries.h) take the place of their weights,
// and config.json has a quantization_config that names the kind. Such a folder loads as any other, into the codes that
// quantize_model() would make. Errors of both.
models::WrittenModel write_quantized_folder(const models::PublishedModel& model, const std::filesystem::path& source,
                                            const std::filesystem::path& folder, const QuantizeSettings& settings,
                                            models::WriteOptions options = {});

}  // namespace tutti::train
