// The model that a configuration describes.
#pragma once

#include <filesystem>
#include <memory>

#include "tutti/models/language_model.h"
#include "tutti/train/config/config.h"

namespace tutti::train {

// Builds the model without memory for its parameters, which forward will read in the configured dtype. A model of
// model.path has the description that the run in the folder `run` has kept of that path; where it has kept none, or the
// folder is "", that of the path. UsageError for a model or flavor that does not exist.
std::unique_ptr<models::LanguageModel> build_model(const Config& config, const std::filesystem::path& run);
// The same with the run of the configuration.
std::unique_ptr<models::LanguageModel> build_model(const Config& config);

// Keeps the description of a model of model.path in the folder of a run; nothing where there is no such path.
void keep_description(const Config& config, const std::filesystem::path& run);

// The options with which a run computes.
models::ForwardOptions forward_options(const Config& config);

}  // namespace tutti::train
