#include "tutti/train/sentence_model.h"

#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/io/text_files.h"
#include "tutti/io/text_source.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/runtime/json_document.h"
#include "tutti/train/quantize_model.h"
#include "tutti/train/ready_model.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

int64_t longest_in(const fs::path& folder, int64_t positions) {
  const fs::path file = folder / "sentence_bert_config.json";
  if (!fs::exists(file)) return positions;
  const JsonDocument document = JsonDocument::read(file.string());
  const std::optional<JsonValue> length = document.top().find_set("max_seq_length");
  const int64_t longest = length ? length->whole() : positions;
  TUTTI_CHECK(longest >= 2 && longest <= positions, "{}: max_seq_length is {}; expected 2 to {}", file.string(),
              longest, positions);
  return longest;
}

std::string config_in(const fs::path& folder) {
  TUTTI_CHECK(fs::is_directory(folder), "{} is no folder; expected one with config.json, tokenizer.json and weights",
              folder.string());
  return (folder / "config.json").string();
}

std::string text_under(const JsonValue& value, const char* key) {
  const std::optional<JsonValue> found = value.find_set(key);
  return found ? found->string() : "";
}

// Other models take the state of one token, or change the mean, which their files say.
void check_pooling(const fs::path& folder) {
  const fs::path modules = folder / "modules.json";
  if (!fs::exists(modules)) return;
  const JsonDocument document = JsonDocument::read(modules.string());
  for (const auto& [_, module] : document.top()) {
    const std::string type = text_under(module, "type"), kind = type.substr(type.rfind('.') + 1);
    TUTTI_CHECK(kind == "Transformer" || kind == "Pooling" || kind == "Normalize",
                "{}: a module of type '{}'; expected Transformer, Pooling and Normalize", modules.string(), type);
    const fs::path pooling = folder / text_under(module, "path") / "config.json";
    if (kind != "Pooling" || !fs::exists(pooling)) continue;
    const JsonDocument settings = JsonDocument::read(pooling.string());
    for (const auto& [key, value] : settings.top()) {
      const bool is_mean = key == "pooling_mode_mean_tokens";
      TUTTI_CHECK(!key.starts_with("pooling_mode_") || value.boolean() == is_mean,
                  "{}: {} is {}; only the mean over tokens is computed here", pooling.string(), key, value.shown());
    }
  }
}

}  // namespace

SentenceModel::SentenceModel(const fs::path& folder, const QuantizeSettings& quantize)
    : name_(name_of_path(folder)),
      model_(std::make_unique<models::Bert>(models::read_bert_config(config_in(folder)))),
      tokenizer_(open_tokenizer(folder.string(), {}, "")),
      longest_(longest_in(folder, model_->config().max_positions)) {
  check_pooling(folder);
  models::load_published_bert(*model_, folder, true);
  model_->eval();
  if (quantize.is_wanted()) quantize_module(*model_, name_, quantize, [&] { return read_lines(quantize); });
}

// Embeds the lines that are not empty, until they have as many tokens as are asked for; returns how many they have.
int64_t SentenceModel::read_lines(const QuantizeSettings& settings) const {
  int64_t tokens = 0;
  for_each_document(expand_text_paths(settings.calibration), [&](std::string_view document) {
    for (size_t begin = 0; begin < document.size() && tokens < settings.calibration_tokens;) {
      const std::string_view line = document.substr(begin, document.find('\n', begin) - begin);
      begin += line.size() + 1;
      if (line.empty()) continue;
      const std::vector<int32_t> ids = encode(line);
      embed(ids);
      tokens += std::ssize(ids);
    }
  });
  TUTTI_CHECK(tokens > 0, "--calibration: the text has no line with text");
  return tokens;
}

std::vector<int32_t> SentenceModel::encode(std::string_view text) const {
  std::vector<int32_t> ids = tokenizer_->encode(text, {.add_special_tokens = true});
  // The last token is the end of the frame.
  if (std::ssize(ids) > longest_) ids.erase(ids.begin() + longest_ - 1, ids.end() - 1);
  return ids;
}

std::vector<float> SentenceModel::embed(std::string_view text) const { return embed(encode(text)); }

std::vector<float> SentenceModel::embed(std::span<const int32_t> ids) const {
  const int64_t count = std::ssize(ids);
  TUTTI_CHECK(count >= 1 && count <= model_->config().max_positions, "embedding of {} tokens; expected 1 to {}", count,
              model_->config().max_positions);
  for (const int32_t id : ids)
    TUTTI_CHECK(id >= 0 && id < model_->config().vocab, "token {} is none of the model's {}", id,
                model_->config().vocab);
  NoGradScope no_grad;
  const Tensor tokens = Tensor::of(std::vector<int32_t>(ids.begin(), ids.end())).view_as({1, count}, {count, 1}, 0);
  const Tensor types = Tensor::of(std::vector<int32_t>(ids.size(), 0)).view_as({1, count}, {count, 1}, 0);
  const Tensor lengths = Tensor::of<int32_t>({static_cast<int32_t>(count)});
  const Tensor embedding = models::sentence_embeddings(model_->forward(tokens, types, lengths), lengths);
  return {embedding.data<float>(), embedding.data<float>() + embedding.numel()};
}

bool is_sentence_model(const fs::path& path) {
  const fs::path file = path / "config.json";
  return fs::exists(file) && text_under(JsonDocument::read(file.string()).top(), "model_type") == "bert";
}

}  // namespace tutti::train
