// The kinds of models that a configuration can describe.
#pragma once

namespace tutti::train {

struct Config;

enum class ModelKind {
  language,  // over tokens (models/language_model.h)
  clicks,    // over rows of click data (models/dlrm.h)
};

// The value of model.name that stands for a click model; every other one is a family of language models.
constexpr const char* kDlrm = "dlrm";

ModelKind kind_of(const Config& config);

}  // namespace tutti::train
