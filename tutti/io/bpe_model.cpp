#include "tutti/io/bpe_model.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/regex_split.h"
#include "tutti/runtime/json_document.h"

namespace tutti::io {

const char* const kGpt2SplitPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kQwenSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// Room for every published vocabulary many times over; a larger id in a file is damage, not a vocabulary.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kEosNames[] = {"<|endoftext|>", "<|end_of_text|>", "<|eos|>", "</s>"};
constexpr const char* kBosNames[] = {"<|begin_of_text|>", "<|bos|>", "<s>"};

class Reader {
 public:
  BpeModel read(const JsonDocument& tokenizer, const JsonDocument* config) {
    const JsonValue top = tokenizer.top(), model = top.at("model");
    read_options(model);
    read_vocab(model.at("vocab"));
    read_merges(model.at("merges"));
    if (const auto tokens = top.find("added_tokens")) read_added(*tokens);
    read_normalizer(top);
    read_pre_tokenizer(top, top.find_set("pre_tokenizer"));
    if (type_of(top.find_set("decoder")) != "ByteLevel")
      top.fail("decoder is '{}', expected ByteLevel", type_of(top.find_set("decoder")));
    read_markers(config);
    return std::move(model_);
  }

 private:
  static std::string type_of(const std::optional<JsonValue>& step) {
    if (!step) return "none";
    const auto type = step->find_set("type");
    return type ? type->string() : "none";
  }

  static bool flag(const JsonValue& object, const char* key) {
    const auto value = object.find_set(key);
    return value && value->boolean();
  }

  static int32_t id_of(const JsonValue& value) { return static_cast<int32_t>(value.whole(0, kMaxTokenId)); }

  void read_options(const JsonValue& model) {
    const auto type = model.find_set("type");
    if (type && type->text() != "BPE") type->fail("is {}, only BPE is supported", type->shown());
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto value = model.find_set(key);
      const bool is_none =
          !value || (value->is_text() && value->text().empty()) || (value->is_number() && value->number() == 0);
      if (!is_none) value->fail("is {}; byte-level BPE has none", value->shown());
    }
    if (flag(model, "byte_fallback")) model.at("byte_fallback").fail("is true; only byte-level BPE is supported");
    model_.ignores_merges = flag(model, "ignore_merges");
  }

  void read_vocab(const JsonValue& vocab) {
    if (!vocab.is_object()) vocab.fail("is {}, expected an object", vocab.shown());
    for (const auto& [key, value] : vocab) {
      const int32_t id = id_of(value);
      const std::string characters(key);
      if (id >= static_cast<int32_t>(model_.vocab.size())) model_.vocab.resize(static_cast<size_t>(id) + 1);
      if (model_.vocab[id].has_value()) value.fail("is {}, and another token has this id", id);
      // A token outside the alphabet cannot come out of merging bytes; it keeps its own text.
      model_.vocab[id] = from_byte_alphabet(characters).value_or(characters);
      ids_.emplace(characters, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
      if (found == ids_.end()) vocab.fail("has no token for byte {}; all 256 are needed", byte);
      model_.byte_ids[static_cast<size_t>(byte)] = found->second;
    }
  }

  int32_t merge_part(const JsonValue& merge, const std::string& characters) const {
    const auto found = ids_.find(characters);
    if (found == ids_.end()) merge.fail("uses '{}', which is not in model.vocab", characters);
    return found->second;
  }

  // "a b" or ["a", "b"].
  static std::pair<std::string, std::string> parts_of(const JsonValue& merge) {
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

  void read_merges(const JsonValue& merges) {
    if (!merges.is_array()) merges.fail("is {}, expected an array", merges.shown());
    std::unordered_set<uint64_t, PairKeyHash> seen;
    for (const auto& [none, merge] : merges) {
      const auto [left, right] = parts_of(merge);
      const BpeMerge made{merge_part(merge, left), merge_part(merge, right), merge_part(merge, left + right)};
      if (!seen.insert(pair_key(made.left, made.right)).second) merge.fail("is in the list twice");
      model_.merges.push_back(made);
    }
  }

  void read_added(const JsonValue& tokens) {
    if (!tokens.is_array()) tokens.fail("is {}, expected an array", tokens.shown());
    std::unordered_set<std::string> contents;
    std::unordered_set<int32_t> ids;
    for (const auto& [none, token] : tokens) {
      const JsonValue content = token.at("content");
      AddedToken added{id_of(token.at("id")), content.string(), flag(token, "special")};
      if (added.content.empty()) content.fail("is empty");
      for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        if (flag(token, key)) token.at(key).fail("is true, which is not supported");
      }
      if (!contents.insert(added.content).second || !ids.insert(added.id).second)
        token.fail("'{}' (id {}) clashes with another added token", added.content, added.id);
      const auto in_vocab = ids_.find(added.content);
      const bool agrees = in_vocab != ids_.end() ? in_vocab->second == added.id
                                                 : added.id >= static_cast<int32_t>(model_.vocab.size()) ||
                                                       !model_.vocab[static_cast<size_t>(added.id)].has_value();
      if (!agrees) token.fail("'{}' and model.vocab disagree about id {}", added.content, added.id);
      model_.added_tokens.push_back(std::move(added));
    }
  }

  void read_normalizer(const JsonValue& top) {
    const auto normalizer = top.find_set("normalizer");
    const std::string type = type_of(normalizer);
    if (normalizer && type != "NFC") normalizer->fail("is '{}'; supported are none and NFC", type);
    model_.normalizes_nfc = type == "NFC";
  }

  void read_split(const JsonValue& split) {
    const JsonValue pattern = split.at("pattern");
    const auto behavior = split.find_set("behavior");
    if (!behavior || behavior->text() != "Isolated" || flag(split, "invert"))
      split.fail("has behavior {} and invert {}; only Isolated without invert is supported",
                 behavior ? behavior->shown() : "none", flag(split, "invert"));
    if (const auto regex = pattern.find_set("Regex")) {
      model_.split_patterns.push_back(regex->string());
      try {
        RegexSplitter compiles(model_.split_patterns.back());
      } catch (const UsageError& error) {
        regex->fail_with(error.what());
      }
      return;
    }
    const auto literal = pattern.find_set("String");
    if (!literal) pattern.fail("has neither Regex nor String");
    std::string quoted;
    for (const char c : literal->text()) {
      if (std::string_view("\\^$.[]|()?*+{}-#/").find(c) != std::string_view::npos) quoted += '\\';
      quoted += c;
    }
    model_.split_patterns.push_back(quoted);
  }

  void read_pre_tokenizer(const JsonValue& holder, const std::optional<JsonValue>& step) {
    const std::string type = type_of(step);
    if (type == "Sequence") {
      const JsonValue steps = step->at("pretokenizers");
      if (!steps.is_array() || steps.size() == 0) steps.fail("is {}, expected steps", steps.shown());
      std::string last;
      for (const auto& [none, inner] : steps) {
        last = type_of(inner);
        if (last == "Sequence") inner.fail("is a Sequence inside another");
        read_pre_tokenizer(steps, inner);
      }
      if (last != "ByteLevel") steps.fail("ends with '{}', expected ByteLevel", last);
    } else if (type == "Split") {
      read_split(*step);
    } else {
      if (type != "ByteLevel")
        (step ? *step : holder)
            .fail("pre_tokenizer is '{}'; supported are ByteLevel, Split and a Sequence of them", type);
      if (flag(*step, "add_prefix_space"))
        step->at("add_prefix_space").fail("is true; a prefix space is not supported");
      // use_regex is on when absent.
      if (!step->find_set("use_regex") || flag(*step, "use_regex")) model_.split_patterns.push_back(kGpt2SplitPattern);
    }
  }

  std::optional<int32_t> added_id(std::string_view content) const {
    for (const AddedToken& token : model_.added_tokens) {
      if (token.content == content) return token.id;
    }
    return std::nullopt;
  }

  std::optional<int32_t> configured_marker(const JsonValue& config, const char* key) const {
    const auto value = config.find_set(key);
    if (!value) return std::nullopt;
    const JsonValue content = value->is_object() ? value->at("content") : *value;
    const std::optional<int32_t> id = added_id(content.text());
    if (!id) content.fail("is {}, which is not an added token", content.shown());
    return id;
  }

  template <size_t kCount>
  std::optional<int32_t> first_known(const char* const (&names)[kCount]) const {
    for (const char* known : names) {
      if (const std::optional<int32_t> id = added_id(known)) return id;
    }
    return std::nullopt;
  }

  void read_markers(const JsonDocument* config) {
    model_.bos_id = config ? configured_marker(config->top(), "bos_token") : first_known(kBosNames);
    model_.eos_id = config ? configured_marker(config->top(), "eos_token") : first_known(kEosNames);
  }

  BpeModel model_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

BpeModel parse_tokenizer_json(std::string_view json, std::string_view config, std::string_view name) {
  const JsonDocument tokenizer(json, {.name = std::string(name)});
  if (config.empty()) return Reader().read(tokenizer, nullptr);
  const JsonDocument beside(config, {.name = fmt::format("{} of {}", kConfigFile, name)});
  return Reader().read(tokenizer, &beside);
}

}  // namespace tutti::io
