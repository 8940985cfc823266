// A model that writes texts, wherever it comes from, with what its files say about writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/generate/engine.h"
#include "tutti/io/chat_template/published_chat.h"
#include "tutti/io/tokenizer.h"
#include "tutti/models/language_model.h"
#include "tutti/train/text_settings.h"

namespace tutti::train {

struct TextModel {
  std::string name;  // of its file or folder
  std::unique_ptr<models::LanguageModel> model;
  std::unique_ptr<Tokenizer> tokenizer;
  PublishedChat chat;  // without templates where the files bring none
  // What the files say about writing; a run: what its sample.txt is written with.
  generate::SamplingOptions sampling;
  int64_t max_tokens = 200;
  std::string prompt;  // "" of a published model
  std::vector<int32_t> ends, suppressed;
  std::vector<std::string> stops;
  int64_t context = 0;
  bool slides = false;  // texts go on beyond the context, as those of a run do
  models::ForwardOptions forward;
  bool compile = false;
  std::optional<DType> cache_dtype;  // as EngineOptions::cache_dtype
  dist::Mesh mesh;
  std::shared_ptr<generate::PackagedForward> packaged;  // null: the model's own forward
  std::shared_ptr<void> numerics;  // the settings under which a run computes, for as long as the model is used

  // The ids of a text that is continued. Names of special tokens in it are meant: it is the whole text.
  std::vector<int32_t> encode(const std::string& text) const;
  // The text of these ids without special tokens.
  std::string decode(std::span<const int32_t> ids) const;
  generate::EngineOptions engine_options() const;

 private:
  friend TextModel open_text_model(const std::filesystem::path& path, const TextModelOptions& options);
  bool frames_documents_ = false;  // a run: a text begins as a document of its corpus
};

// Opens a run folder, with its newest checkpoint, a folder of Hugging Face's, a GGUF file, or a packaged model
// (package_text.h), whose context is at most the package's. UsageError where there is
// no model, no checkpoint or no tokenizer, and for ranks that cannot divide the model; EnvironmentError when the
// tokenizer of a run is not the one that the checkpoint was trained with.
TextModel open_text_model(const std::filesystem::path& path, const TextModelOptions& options);

}  // namespace tutti::train
