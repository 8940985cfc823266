#include "tutti/io/tokenizer_json.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

constexpr const char* kEosNames[] = {"<|endoftext|>", "<|end_of_text|>", "<|eos|>", "</s>"};
constexpr const char* kBosNames[] = {"<|begin_of_text|>", "<|bos|>", "<s>"};

const AddedToken* named(const std::vector<AddedToken>& tokens, std::string_view content) {
  const auto found =
      std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& token) { return token.content == content; });
  return found == tokens.end() ? nullptr : &*found;
}

std::optional<int32_t> configured_marker(const JsonValue& config, const char* key,
                                         const std::vector<AddedToken>& tokens) {
  const auto value = config.find_set(key);
  if (!value) return std::nullopt;
  const JsonValue content = value->is_object() ? value->at("content") : *value;
  const AddedToken* token = named(tokens, content.text());
  if (token == nullptr) content.fail("is {}, which is not an added token", content.shown());
  return token->id;
}

template <size_t kCount>
std::optional<int32_t> first_known(const char* const (&names)[kCount], const std::vector<AddedToken>& tokens) {
  for (const char* known : names) {
    if (const AddedToken* token = named(tokens, known)) return token->id;
  }
  return std::nullopt;
}

}  // namespace

int32_t token_id_of(const JsonValue& value) { return static_cast<int32_t>(value.whole(0, kMaxTokenId)); }

std::string step_type(const std::optional<JsonValue>& step) {
  if (!step) return "none";
  const auto type = step->find_set("type");
  return type ? type->string() : "none";
}

bool flag_of(const JsonValue& object, const char* key, bool when_absent) {
  const auto value = object.find_set(key);
  return value ? value->boolean() : when_absent;
}

std::pair<std::string, std::string> merge_parts(const JsonValue& merge) {
  if (merge.is_text()) {
    const std::string_view text = merge.text();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      merge.fail("is {}, expected two tokens with one space between", merge.shown());
    return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
  }
  if (!merge.is_array() || merge.size() != 2) merge.fail("is {}, expected \"a b\" or [\"a\", \"b\"]", merge.shown());
  auto part = merge.begin();
  const std::string left = (*part).value.string();
  return {left, (*++part).value.string()};
}

std::vector<AddedToken> read_added_tokens(const JsonValue& top, const VocabularyIds& vocabulary) {
  const auto tokens = top.find("added_tokens");
  if (!tokens) return {};
  if (!tokens->is_array()) tokens->fail("is {}, expected an array", tokens->shown());
  std::vector<AddedToken> read;
  std::unordered_set<std::string> contents;
  std::unordered_set<int32_t> ids;
  for (const auto& [none, token] : *tokens) {
    const JsonValue content = token.at("content");
    AddedToken added{.id = token_id_of(token.at("id")),
                     .content = content.string(),
                     .special = flag_of(token, "special"),
                     .lstrip = flag_of(token, "lstrip"),
                     .rstrip = flag_of(token, "rstrip"),
                     .single_word = flag_of(token, "single_word"),
                     .normalized = flag_of(token, "normalized")};
    if (added.content.empty()) content.fail("is empty");
    if (!contents.insert(added.content).second || !ids.insert(added.id).second)
      token.fail("'{}' (id {}) clashes with another added token", added.content, added.id);
    const auto in_vocab = vocabulary.ids.find(added.content);
    const bool agrees =
        in_vocab != vocabulary.ids.end() ? in_vocab->second == added.id : !vocabulary.has_token(added.id);
    if (!agrees) token.fail("'{}' and model.vocab disagree about id {}", added.content, added.id);
    read.push_back(std::move(added));
  }
  return read;
}

void forget_needless_normalized(std::vector<AddedToken>& tokens) {
  if (!std::all_of(tokens.begin(), tokens.end(), [](const AddedToken& token) { return token.normalized; })) return;
  for (AddedToken& token : tokens) token.normalized = false;
}

DocumentMarkers read_document_markers(const JsonDocument* config, const std::vector<AddedToken>& tokens) {
  if (config == nullptr) return {first_known(kBosNames, tokens), first_known(kEosNames, tokens)};
  return {configured_marker(config->top(), "bos_token", tokens), configured_marker(config->top(), "eos_token", tokens)};
}

void write_added_tokens(const std::vector<AddedToken>& tokens, JsonWriter& json) {
  json.array();
  for (const AddedToken& token : tokens) {
    json.object()
        .member("id", token.id)
        .member("content", token.content)
        .member("single_word", token.single_word)
        .member("lstrip", token.lstrip)
        .member("rstrip", token.rstrip)
        .member("normalized", token.normalized)
        .member("special", token.special)
        .end();
  }
  json.end();
}

std::string markers_json(const DocumentMarkers& markers, const std::vector<AddedToken>& tokens) {
  JsonWriter json(1);
  json.object();
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    const auto token =
        std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& added) { return added.id == id; });
    token != tokens.end() ? json.member(key, token->content) : json.member(key, nullptr);
  };
  name("bos_token", markers.bos);
  name("eos_token", markers.eos);
  return json.end().take() + "\n";
}

}  // namespace tutti::io
