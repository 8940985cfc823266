#include <algorithm>

#include "tutti/io/bpe_model.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/tokenizer_json.h"
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

void byte_level(JsonWriter& json, bool adds_prefix_space = false, bool uses_regex = false) {
  json.object()
      .member("type", "ByteLevel")
      .member("add_prefix_space", adds_prefix_space)
      .member("trim_offsets", false)
      .member("use_regex", uses_regex)
      .end();
}

void pre_tokenizer(const BpeModel& model, JsonWriter& json) {
  json.object().member("type", "Sequence").key("pretokenizers").array();
  const size_t splits = model.prefix_space_after.value_or(model.split_patterns.size());
  for (size_t i = 0; i < splits; ++i) {
    json.object().member("type", "Split").key("pattern").object().member("Regex", model.split_patterns[i]).end();
    json.member("behavior", "Isolated").member("invert", false).end();
  }
  byte_level(json, model.prefix_space_after.has_value(), splits < model.split_patterns.size());
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

void post_processor(const BpeModel& model, JsonWriter& json) {
  const auto content_of = [&](int32_t id) {
    for (const AddedToken& token : model.added_tokens) {
      if (token.id == id) return token.content;
    }
    return to_byte_alphabet(*model.vocab[static_cast<size_t>(id)]);
  };
  json.object().member("type", "Sequence").key("processors").array();
  byte_level(json);
  write_template(model.frame, content_of, json);
  json.end().end();
}

std::string json_of(const BpeModel& model, bool has_frame) {
  JsonWriter json(1);
  json.object().member("version", "1.0").member("truncation", nullptr).member("padding", nullptr).key("added_tokens");
  write_added_tokens(model.added_tokens, json);
  json.key("normalizer");
  if (model.normalizes_nfc) json.object().member("type", "NFC").end();
  else json.value(nullptr);
  json.key("pre_tokenizer");
  pre_tokenizer(model, json);
  json.key("post_processor");
  if (has_frame) post_processor(model, json);
  else byte_level(json);
  byte_level(json.key("decoder"));
  json.key("model").object().member("type", "BPE");
  json.member("dropout", nullptr).key("unk_token");
  const ByteTokens& bytes = model.bytes;
  bytes.unknown ? json.value(vocab_key(model, static_cast<size_t>(*bytes.unknown))) : json.value(nullptr);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) json.member(key, nullptr);
  json.member("fuse_unk", bytes.fuses_unknown)
      .member("byte_fallback", false)
      .member("ignore_merges", model.ignores_merges);
  vocab_and_merges(model, json);
  return json.end().end().take() + "\n";
}

}  // namespace

std::string tokenizer_json_of(const BpeModel& model) { return json_of(model, !model.frame.is_empty()); }

std::string unframed_tokenizer_json_of(const BpeModel& model) { return json_of(model, false); }

std::string tokenizer_config_json_of(const BpeModel& model) {
  return markers_json({model.bos_id, model.eos_id}, model.added_tokens);
}

}  // namespace tutti::io
