#include <algorithm>

#include "tutti/io/sentence_piece_model.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

using Prefix = SentencePieceModel::Prefix;

void replace(JsonWriter& json, std::string_view from, std::string_view to) {
  json.object().member("type", "Replace").key("pattern").object().member("String", from).end();
  json.member("content", to).end();
}

void normalizer(const SentencePieceModel& model, JsonWriter& json) {
  json.object().member("type", "Sequence").key("normalizers").array();
  if (model.prefix == Prefix::every_stretch)
    json.object().member("type", "Prepend").member("prepend", kSpaceCharacter).end();
  replace(json, " ", kSpaceCharacter);
  json.end().end();
}

void pre_tokenizer(const SentencePieceModel& model, JsonWriter& json) {
  const bool prepends = model.prefix == Prefix::unless_there || model.prefix == Prefix::unless_there_at_start;
  if (!prepends && !model.splits_words) {
    json.value(nullptr);
    return;
  }
  json.object()
      .member("type", "Metaspace")
      .member("replacement", kSpaceCharacter)
      .member("prepend_scheme", !prepends                              ? "never"
                                : model.prefix == Prefix::unless_there ? "always"
                                                                       : "first")
      .member("split", model.splits_words)
      .end();
}

void decoder(const SentencePieceModel& model, JsonWriter& json) {
  json.object().member("type", "Sequence").key("decoders").array();
  replace(json, kSpaceCharacter, " ");
  for (const char* type : {"ByteFallback", "Fuse"}) json.object().member("type", type).end();
  if (model.strips_space)
    json.object().member("type", "Strip").member("content", " ").member("start", 1).member("stop", 0).end();
  json.end().end();
}

std::string content_of(const SentencePieceModel& model, int32_t id) {
  const auto has_id = [id](const AddedToken& token) { return token.id == id; };
  const auto added = std::find_if(model.added_tokens.begin(), model.added_tokens.end(), has_id);
  return added != model.added_tokens.end() ? added->content : *model.vocab[static_cast<size_t>(id)];
}

}  // namespace

std::string tokenizer_json_of(const SentencePieceModel& model, bool has_frame) {
  JsonWriter json(1);
  json.object().member("version", "1.0").member("truncation", nullptr).member("padding", nullptr).key("added_tokens");
  write_added_tokens(model.added_tokens, json);
  normalizer(model, json.key("normalizer"));
  pre_tokenizer(model, json.key("pre_tokenizer"));
  json.key("post_processor");
  if (has_frame && !model.frame.is_empty())
    write_template(model.frame, [&](int32_t id) { return content_of(model, id); }, json);
  else json.value(nullptr);
  decoder(model, json.key("decoder"));
  json.key("model").object().member("type", "BPE").member("dropout", nullptr).key("unk_token");
  model.bytes.unknown ? json.value(content_of(model, *model.bytes.unknown)) : json.value(nullptr);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) json.member(key, nullptr);
  json.member("fuse_unk", model.bytes.fuses_unknown)
      .member("byte_fallback", true)
      .member("ignore_merges", model.ignores_merges);
  json.key("vocab").object();
  for (size_t id = 0; id < model.vocab.size(); ++id) {
    if (model.vocab[id]) json.member(*model.vocab[id], static_cast<int64_t>(id));
  }
  json.end().key("merges").array();
  for (const BpeMerge& merge : model.merges) {
    json.array();
    for (const int32_t id : {merge.left, merge.right}) json.value(*model.vocab[static_cast<size_t>(id)]);
    json.end();
  }
  return json.end().end().end().take() + "\n";
}

}  // namespace tutti::io
