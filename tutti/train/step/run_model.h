// The model that a configuration describes.
#pragma once

#include <filesystem>
#include <memory>

#include "tutti/models/language_model.h"
#include "tutti/train/config/config.h"

namespace tutti::train {

// Builds the model without memory for its parameters, which forward will read in the configured dtype. UsageError for a
// model or flavor that does not exist.
// The model of the configuration, without values. `run`: the folder of a run that has begun, whose own description of a
// model of model.path, if it has one, is taken whatever has become of that path.
std::unique_ptr<models::LanguageModel> build_model(const Config& config, const std::filesystem::path& run = {});

// Writes the description of a model of model.path into the folder of a run; nothing where there is no such path.
void save_run_description(const Config& config, const std::filesystem::path& run);
// The options with which a run computes.
models::ForwardOptions forward_options(const Config& config);

}  // namespace tutti::train
