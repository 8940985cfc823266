// A published model in a folder or file, whatever its format: its description and its tensors under the names of this
// library.
//
//   const PublishedModel published("SmolLM2-135M");        // a Hugging Face folder, or a GGUF file
//   Decoder model(published.config(), {.max_positions = 2048});
//   published.load(model);
#pragma once

#include <filesystem>

#include "tutti/io/model_file.h"
#include "tutti/models/decoder_config.h"
#include "tutti/nn/module.h"
#include "tutti/nn/state_dict.h"

namespace tutti::models {

class LanguageModel;

class PublishedModel {
 public:
  // A folder of Hugging Face's with config.json and weights, an index or a weight file beside its config.json, or a
  // GGUF file, which describes itself. UsageError for a path without description, an architecture that no family reads,
  // what is not computed here, and a packaged model, which has no weights; errors of ModelFile.
  explicit PublishedModel(const std::filesystem::path& path);

  const std::string& path() const { return file_.path(); }
  const DecoderConfig& config() const { return config_; }
  // The tensors under the names of this library.
  const ModelFile& file() const { return file_; }
  // Loads all weights. Errors as nn::load(); the model is then unchanged.
  void load(nn::Module& model, const nn::LoadOptions& options = {}) const;

 private:
  ModelFile file_;
  DecoderConfig config_;
};

// The description alone: a folder needs no weights beside its config.json. Errors as PublishedModel().
DecoderConfig published_description(const std::filesystem::path& path);

// Loads the weights of a published model into one that was built from another description: a folder with
// model.safetensors or its index, such an index, a file, or a GGUF file. The config.json beside them, or the metadata
// of the GGUF file, are compared with the model first; false when there is neither, and nothing was compared.
// UsageError, listing what differs, and errors as nn::load(); the model is then unchanged.
bool load_published(LanguageModel& model, const std::filesystem::path& path);

}  // namespace tutti::models
