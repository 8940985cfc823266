#include <algorithm>

#include "tutti/io/bpe_model.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

// How a token stands in model.vocab: in the alphabet of bytes, but for an added token that is written as it is found in
// text.
std::string vocab_key(const BpeModel& model, size_t id) {
  const std::string& bytes = *model.vocab[id];
  const bool as_found = std::any_of(model.added_tokens.begin(), model.added_tokens.end(), [&](const AddedToken& token) {
    return token.id == static_cast<int32_t>(id) && token.content == bytes;
  });
  return as_found ? bytes : to_byte_alphabet(bytes);
}

const AddedToken* added_token(const BpeModel& model, std::optional<int32_t> id) {
  const auto found = std::find_if(model.added_tokens.begin(), model.added_tokens.end(),
                                  [&](const AddedToken& token) { return token.id == id; });
  return found == model.added_tokens.end() ? nullptr : &*found;
}

void byte_level(JsonWriter& json) {
  json.object()
      .member("type", "ByteLevel")
      .member("add_prefix_space", false)
      .member("trim_offsets", false)
      .member("use_regex", false)
      .end();
}

void added_tokens(const BpeModel& model, JsonWriter& json) {
  json.array();
  for (const AddedToken& token : model.added_tokens) {
    json.object()
        .member("id", token.id)
        .member("content", token.content)
        .member("single_word", false)
        .member("lstrip", false);
    json.member("rstrip", false).member("normalized", false).member("special", token.special).end();
  }
  json.end();
}

void pre_tokenizer(const BpeModel& model, JsonWriter& json) {
  json.object().member("type", "Sequence").key("pretokenizers").array();
  for (const std::string& pattern : model.split_patterns) {
    json.object().member("type", "Split").key("pattern").object().member("Regex", pattern).end();
    json.member("behavior", "Isolated").member("invert", false).end();
  }
  byte_level(json);
  json.end().end();
}

void vocab_and_merges(const BpeModel& model, JsonWriter& json) {
  json.key("vocab").object();
  for (size_t id = 0; id < model.vocab.size(); ++id) {
    if (model.vocab[id]) json.member(vocab_key(model, id), static_cast<int64_t>(id));
  }
  json.end().key("merges").array();
  const auto characters = [&](int32_t id) { return to_byte_alphabet(*model.vocab[static_cast<size_t>(id)]); };
  for (const BpeMerge& merge : model.merges) json.value(characters(merge.left) + " " + characters(merge.right));
  json.end();
}

}  // namespace

std::string tokenizer_json_of(const BpeModel& model) {
  JsonWriter json(1);
  json.object().member("version", "1.0").member("truncation", nullptr).member("padding", nullptr).key("added_tokens");
  added_tokens(model, json);
  json.key("normalizer");
  if (model.normalizes_nfc) json.object().member("type", "NFC").end();
  else json.value(nullptr);
  json.key("pre_tokenizer");
  pre_tokenizer(model, json);
  for (const char* key : {"post_processor", "decoder"}) byte_level(json.key(key));
  json.key("model").object().member("type", "BPE");
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    json.member(key, nullptr);
  json.member("fuse_unk", false).member("byte_fallback", false).member("ignore_merges", model.ignores_merges);
  vocab_and_merges(model, json);
  return json.end().end().take() + "\n";
}

std::string tokenizer_config_json_of(const BpeModel& model) {
  JsonWriter json(1);
  json.object();
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    const AddedToken* token = added_token(model, id);
    token ? json.member(key, token->content) : json.member(key, nullptr);
  };
  name("bos_token", model.bos_id);
  name("eos_token", model.eos_id);
  return json.end().take() + "\n";
}

}  // namespace tutti::io
