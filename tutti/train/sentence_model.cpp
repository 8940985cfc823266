#include "tutti/train/sentence_model.h"

#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/runtime/json_document.h"

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

}  // namespace

SentenceModel::SentenceModel(const fs::path& folder)
    : model_(std::make_unique<models::Bert>(models::read_bert_config((folder / "config.json").string()))),
      tokenizer_(open_tokenizer(folder.string(), {}, "")),
      longest_(longest_in(folder, model_->config().max_positions)) {
  models::load_published_bert(*model_, folder, true);
  model_->eval();
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

}  // namespace tutti::train
