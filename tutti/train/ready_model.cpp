#include "tutti/train/ready_model.h"

#include "tutti/core/error.h"
#include "tutti/io/gguf_vocabulary.h"
#include "tutti/io/model_file.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/models/published_model.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGguf = "gguf";

std::optional<int64_t> id_in(const ModelMetadata& metadata, const char* key) {
  const std::optional<MetadataField> field = metadata.find(fmt::format("tokenizer.ggml.{}", key));
  return field ? std::optional(field->whole(0)) : std::nullopt;
}
std::optional<bool> flag_in(const ModelMetadata& metadata, const char* key) {
  const std::optional<MetadataField> field = metadata.find(fmt::format("tokenizer.ggml.{}", key));
  return field ? std::optional(field->boolean()) : std::nullopt;
}
std::vector<std::string> texts_in(const ModelMetadata& metadata, const char* key) {
  const std::optional<MetadataField> field = metadata.find(fmt::format("tokenizer.ggml.{}", key));
  return field ? field->texts() : std::vector<std::string>();
}

GgufVocabulary vocabulary_in(const ModelMetadata& metadata) {
  GgufVocabulary vocabulary{.model = metadata.at("tokenizer.ggml.model").text()};
  if (const auto pre = metadata.find("tokenizer.ggml.pre")) vocabulary.pre = pre->text();
  vocabulary.tokens = texts_in(metadata, "tokens");
  vocabulary.merges = texts_in(metadata, "merges");
  if (const auto types = metadata.find("tokenizer.ggml.token_type")) {
    for (const int64_t type : types->wholes(0, 1 << 8)) vocabulary.token_types.push_back(static_cast<int32_t>(type));
  }
  vocabulary.bos_id = id_in(metadata, "bos_token_id");
  vocabulary.eos_id = id_in(metadata, "eos_token_id");
  vocabulary.unknown_id = id_in(metadata, "unknown_token_id");
  vocabulary.separator_id = id_in(metadata, "seperator_token_id");
  vocabulary.cls_id = id_in(metadata, "cls_token_id");
  vocabulary.adds_bos = flag_in(metadata, "add_bos_token");
  vocabulary.adds_eos = flag_in(metadata, "add_eos_token");
  return vocabulary;
}

std::unique_ptr<Tokenizer> tokenizer_of(const models::PublishedModel& published, const fs::path& path) {
  if (published.file().format() == kGguf)
    return tokenizer_of_gguf(vocabulary_in(published.file().metadata()), published.path());
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  TUTTI_CHECK(fs::exists(folder / "tokenizer.json"), "{} has no tokenizer.json, which says how text becomes tokens",
              folder.string());
  return open_tokenizer(folder.string(), {}, "");
}

}  // namespace

ReadyModel open_published(const fs::path& path, int64_t positions, DType compute) {
  const models::PublishedModel published(path);
  ReadyModel ready{std::make_unique<models::Decoder>(published.config(), positions), tokenizer_of(published, path)};
  TUTTI_CHECK(ready.tokenizer->vocab_size() <= published.config().vocab,
              "{}: the tokenizer has {} tokens, and the model {}", path.string(), ready.tokenizer->vocab_size(),
              published.config().vocab);
  ready.model->to(compute);
  published.load(*ready.model, {.freeze = true});
  ready.model->eval();
  return ready;
}

std::unique_ptr<Tokenizer> open_published_tokenizer(const fs::path& path) {
  return tokenizer_of(models::PublishedModel(path), path);
}

bool is_published(const fs::path& path) { return !fs::exists(path / "config.resolved.toml") && holds_model(path); }

}  // namespace tutti::train
