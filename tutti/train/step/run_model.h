// The model that a configuration describes.
#pragma once

#include <memory>

#include "tutti/models/language_model.h"
#include "tutti/train/config/config.h"

namespace tutti::train {

// Builds the model without memory for its parameters, which forward will read in the configured dtype. UsageError for a
// model or flavor that does not exist.
std::unique_ptr<models::LanguageModel> build_model(const Config& config);
// The options with which a run computes.
models::ForwardOptions forward_options(const Config& config);

}  // namespace tutti::train
