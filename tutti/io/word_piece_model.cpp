#include "tutti/io/word_piece_model.h"

#include <algorithm>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

// The longest word that is put together; longer ones in published files are nowhere near.
constexpr int64_t kMostCharactersPerWord = 1 << 16;

class WordPieceReader {
 public:
  WordPieceModel read(const JsonDocument& tokenizer, const JsonDocument* config) {
    const JsonValue top = tokenizer.top(), model = top.at("model");
    read_vocab(model.at("vocab"));
    read_options(model);
    const auto in_vocab = [this](int32_t id) {
      return id < static_cast<int32_t>(model_.vocab.size()) && model_.vocab[static_cast<size_t>(id)].has_value();
    };
    model_.added_tokens = read_added_tokens(top, {.ids = ids_, .has_token = in_vocab});
    read_normalizer(top);
    read_steps(top);
    model_.frame = read_post_processor(top, [&](int32_t id) {
      return in_vocab(id) || std::any_of(model_.added_tokens.begin(), model_.added_tokens.end(),
                                         [&](const AddedToken& token) { return token.id == id; });
    });
    const DocumentMarkers markers = read_document_markers(config, model_.added_tokens);
    model_.bos_id = markers.bos;
    model_.eos_id = markers.eos;
    return std::move(model_);
  }

 private:
  void read_vocab(const JsonValue& vocab) {
    if (!vocab.is_object()) vocab.fail("is {}, expected an object", vocab.shown());
    for (const auto& [key, value] : vocab) {
      const int32_t id = token_id_of(value);
      if (id >= static_cast<int32_t>(model_.vocab.size())) model_.vocab.resize(static_cast<size_t>(id) + 1);
      if (model_.vocab[static_cast<size_t>(id)].has_value()) value.fail("is {}, and another token has this id", id);
      model_.vocab[static_cast<size_t>(id)] = std::string(key);
      ids_.emplace(key, id);
    }
  }

  void read_options(const JsonValue& model) {
    const auto type = model.find_set("type");
    if (type && type->text() != "WordPiece") type->fail("is {}, expected WordPiece", type->shown());
    const JsonValue unknown = model.at("unk_token");
    const auto found = ids_.find(unknown.string());
    if (found == ids_.end()) unknown.fail("is {}, which is not in model.vocab", unknown.shown());
    model_.unknown_id = found->second;
    if (const auto prefix = model.find_set("continuing_subword_prefix")) model_.continuation_prefix = prefix->string();
    if (const auto most = model.find_set("max_input_chars_per_word"))
      model_.max_characters_per_word = most->whole(0, kMostCharactersPerWord);
  }

  void read_normalizer(const JsonValue& top) {
    const auto step = top.find_set("normalizer");
    if (step_type(step) != "BertNormalizer")
      (step ? *step : top).fail("normalizer is '{}', expected BertNormalizer", step_type(step));
    BertNormalization& options = model_.normalization;
    options.clean_text = flag_of(*step, "clean_text", true);
    options.handle_chinese_chars = flag_of(*step, "handle_chinese_chars", true);
    options.lowercase = flag_of(*step, "lowercase", true);
    if (const auto strips = step->find_set("strip_accents")) options.strip_accents = strips->boolean();
  }

  void read_steps(const JsonValue& top) {
    const std::string splitter = step_type(top.find_set("pre_tokenizer"));
    if (splitter != "BertPreTokenizer") top.fail("pre_tokenizer is '{}', expected BertPreTokenizer", splitter);
    const auto decoder = top.find_set("decoder");
    if (step_type(decoder) != "WordPiece") top.fail("decoder is '{}', expected WordPiece", step_type(decoder));
    const auto prefix = decoder->find_set("prefix");
    if (prefix && prefix->text() != model_.continuation_prefix)
      prefix->fail("is {}, but words are continued by tokens that begin with '{}'", prefix->shown(),
                   model_.continuation_prefix);
    model_.cleans_up = flag_of(*decoder, "cleanup", true);
  }

  WordPieceModel model_;
  std::unordered_map<std::string, int32_t> ids_;
};

void write_normalizer(const BertNormalization& options, JsonWriter& json) {
  json.key("normalizer").object().member("type", "BertNormalizer").member("clean_text", options.clean_text);
  json.member("handle_chinese_chars", options.handle_chinese_chars).key("strip_accents");
  if (options.strip_accents) json.value(*options.strip_accents);
  else json.value(nullptr);
  json.member("lowercase", options.lowercase).end();
}

std::string content_of(const WordPieceModel& model, int32_t id) {
  for (const AddedToken& token : model.added_tokens) {
    if (token.id == id) return token.content;
  }
  return model.vocab[static_cast<size_t>(id)].value_or("");
}

}  // namespace

WordPieceModel parse_word_piece_json(std::string_view json, std::string_view config, std::string_view name) {
  const JsonDocument tokenizer(json, {.name = std::string(name)});
  if (config.empty()) return WordPieceReader().read(tokenizer, nullptr);
  const JsonDocument beside(config, {.name = fmt::format("tokenizer_config.json of {}", name)});
  return WordPieceReader().read(tokenizer, &beside);
}

std::string tokenizer_json_of(const WordPieceModel& model) {
  JsonWriter json(1);
  json.object().member("version", "1.0").member("truncation", nullptr).member("padding", nullptr).key("added_tokens");
  write_added_tokens(model.added_tokens, json);
  write_normalizer(model.normalization, json);
  json.key("pre_tokenizer").object().member("type", "BertPreTokenizer").end().key("post_processor");
  if (model.frame.is_empty()) json.value(nullptr);
  else write_template(model.frame, [&](int32_t id) { return content_of(model, id); }, json);
  json.key("decoder").object().member("type", "WordPiece").member("prefix", model.continuation_prefix);
  json.member("cleanup", model.cleans_up).end().key("model").object().member("type", "WordPiece");
  json.member("unk_token", content_of(model, model.unknown_id));
  json.member("continuing_subword_prefix", model.continuation_prefix);
  json.member("max_input_chars_per_word", model.max_characters_per_word).key("vocab").object();
  for (size_t id = 0; id < model.vocab.size(); ++id) {
    if (model.vocab[id]) json.member(*model.vocab[id], static_cast<int64_t>(id));
  }
  return json.end().end().end().take() + "\n";
}

}  // namespace tutti::io
