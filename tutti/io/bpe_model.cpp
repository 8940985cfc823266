#include "tutti/io/bpe_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tutti/core/error.h"
#include "tutti/io/byte_alphabet.h"

namespace tutti::io {

const char* const kGpt2SplitPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kQwenSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

using Json = nlohmann::json;

// Room for every published vocabulary many times over; a larger id in a file is damage, not a vocabulary.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;

constexpr const char* kEosNames[] = {"<|endoftext|>", "<|end_of_text|>", "<|eos|>", "</s>"};
constexpr const char* kBosNames[] = {"<|begin_of_text|>", "<|bos|>", "<s>"};

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  BpeModel read(std::string_view text, std::string_view config) {
    const Json root = parse(text, name_);
    check(root.is_object(), "the file is {}, expected an object", root.type_name());
    const Json& model = member(root, "model");
    read_options(model);
    read_vocab(member(model, "vocab"));
    read_merges(member(model, "merges"));
    read_added(root.value("added_tokens", Json::array()));
    read_normalizer(optional(root, "normalizer"));
    read_pre_tokenizer(optional(root, "pre_tokenizer"));
    check(type_of(optional(root, "decoder")) == "ByteLevel", "decoder is '{}', expected ByteLevel",
          type_of(optional(root, "decoder")));
    read_markers(config);
    return std::move(model_);
  }

 private:
  template <class... Args>
  void check(bool holds, fmt::format_string<Args...> message, Args&&... args) const {
    if (holds) return;
    throw UsageError(fmt::format("tokenizer '{}': {}", name_, fmt::format(message, std::forward<Args>(args)...)));
  }

  Json parse(std::string_view text, std::string_view what) const {
    try {
      return Json::parse(text);
    } catch (const Json::parse_error& error) {
      throw UsageError(fmt::format("tokenizer '{}': malformed JSON at byte {} of {}", name_, error.byte, what));
    }
  }

  const Json& member(const Json& object, const char* key) const {
    check(object.is_object() && object.contains(key), "the key '{}' is missing", key);
    return object[key];
  }

  static const Json& optional(const Json& object, const char* key) {
    static const Json none;
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
  }

  static std::string type_of(const Json& object) {
    const Json& type = object.is_object() ? optional(object, "type") : object;
    return type.is_string() ? type.get<std::string>() : "none";
  }

  bool flag(const Json& object, const char* key) const {
    const Json& value = optional(object, key);
    check(value.is_boolean() || value.is_null(), "'{}' is {}, expected true or false", key, value.type_name());
    return value.is_boolean() && value.get<bool>();
  }

  int32_t id_of(const Json& value, std::string_view token) const {
    check(value.is_number_integer() && value >= 0 && value <= kMaxTokenId,
          "the id of token '{}' is {}, expected an integer in 0..{}", token, value.dump(), kMaxTokenId);
    return value.get<int32_t>();
  }

  void read_options(const Json& model) {
    const Json& type = optional(model, "type");
    check(type.is_null() || type == "BPE", "model type is {}, only BPE is supported", type.dump());
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = optional(model, key);
      check(value.is_null() || value == "" || value == 0, "model.{} is {}; byte-level BPE has none", key, value.dump());
    }
    check(!flag(model, "byte_fallback"), "model.byte_fallback is true; only byte-level BPE is supported");
    model_.ignores_merges = flag(model, "ignore_merges");
  }

  void read_vocab(const Json& vocab) {
    check(vocab.is_object(), "model.vocab is {}, expected an object", vocab.type_name());
    for (const auto& [characters, value] : vocab.items()) {
      const int32_t id = id_of(value, characters);
      if (id >= static_cast<int32_t>(model_.vocab.size())) model_.vocab.resize(static_cast<size_t>(id) + 1);
      check(!model_.vocab[id].has_value(), "id {} has two tokens, one being '{}'", id, characters);
      // A token outside the alphabet cannot come out of merging bytes; it keeps its own text.
      model_.vocab[id] = from_byte_alphabet(characters).value_or(characters);
      ids_.emplace(characters, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
      check(found != ids_.end(), "model.vocab has no token for byte {}; all 256 are needed", byte);
      model_.byte_ids[static_cast<size_t>(byte)] = found->second;
    }
  }

  int32_t merge_part(const std::string& characters, size_t rank) const {
    const auto found = ids_.find(characters);
    check(found != ids_.end(), "merge {} uses '{}', which is not in model.vocab", rank, characters);
    return found->second;
  }

  void read_merges(const Json& merges) {
    check(merges.is_array(), "model.merges is {}, expected an array", merges.type_name());
    std::unordered_map<uint64_t, size_t, PairKeyHash> seen;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const Json& merge = merges[rank];
      std::string left, right;
      if (merge.is_string()) {
        const std::string& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
              "merge {} is {}, expected two tokens with one space between", rank, merge.dump());
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        check(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
              "merge {} is {}, expected \"a b\" or [\"a\", \"b\"]", rank, merge.dump());
        left = merge[0];
        right = merge[1];
      }
      const BpeMerge made{merge_part(left, rank), merge_part(right, rank), merge_part(left + right, rank)};
      const bool is_new = seen.emplace(pair_key(made.left, made.right), rank).second;
      check(is_new, "merge {} is in the list twice", rank);
      model_.merges.push_back(made);
    }
  }

  void read_added(const Json& tokens) {
    check(tokens.is_array(), "added_tokens is {}, expected an array", tokens.type_name());
    for (const Json& token : tokens) {
      const Json& content = member(token, "content");
      check(content.is_string() && content != "", "an added token has the content {}", content.dump());
      AddedToken added{id_of(member(token, "id"), content.get<std::string>()), content, flag(token, "special")};
      for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        check(!flag(token, key), "added token '{}' has {}, which is not supported", added.content, key);
      }
      for (const AddedToken& other : model_.added_tokens) {
        check(other.id != added.id && other.content != added.content, "added tokens '{}' (id {}) and '{}' (id {}) clash",
              other.content, other.id, added.content, added.id);
      }
      const auto in_vocab = ids_.find(added.content);
      check(in_vocab != ids_.end() ? in_vocab->second == added.id
                                   : added.id >= static_cast<int32_t>(model_.vocab.size()) ||
                                         !model_.vocab[static_cast<size_t>(added.id)].has_value(),
            "added token '{}' and model.vocab disagree about id {}", added.content, added.id);
      model_.added_tokens.push_back(std::move(added));
    }
  }

  void read_normalizer(const Json& normalizer) {
    const std::string type = type_of(normalizer);
    check(normalizer.is_null() || type == "NFC", "normalizer is '{}'; supported are none and NFC", type);
    model_.normalizes_nfc = type == "NFC";
  }

  void read_split(const Json& split) {
    const Json& pattern = member(split, "pattern");
    check(optional(split, "behavior") == "Isolated" && !flag(split, "invert"),
          "pre_tokenizer Split has behavior {} and invert {}; only Isolated without invert is supported",
          optional(split, "behavior").dump(), optional(split, "invert").dump());
    const Json& regex = optional(pattern, "Regex");
    const Json& literal = optional(pattern, "String");
    check(pattern.is_object() && (regex.is_string() || literal.is_string()),
          "pre_tokenizer Split has the pattern {}, expected a Regex or a String", pattern.dump());
    if (regex.is_string()) {
      model_.split_patterns.push_back(regex);
      return;
    }
    std::string quoted;
    for (const char c : literal.get_ref<const std::string&>()) {
      if (std::string_view("\\^$.[]|()?*+{}-#/").find(c) != std::string_view::npos) quoted += '\\';
      quoted += c;
    }
    model_.split_patterns.push_back(quoted);
  }

  void read_pre_tokenizer(const Json& step) {
    const std::string type = type_of(step);
    if (type == "Sequence") {
      const Json& steps = member(step, "pretokenizers");
      check(steps.is_array() && !steps.empty(), "pre_tokenizer Sequence is empty");
      for (const Json& inner : steps) {
        check(type_of(inner) != "Sequence", "a pre_tokenizer Sequence stands inside another");
        read_pre_tokenizer(inner);
      }
      check(type_of(steps.back()) == "ByteLevel", "the last pre_tokenizer is '{}', expected ByteLevel",
            type_of(steps.back()));
    } else if (type == "Split") {
      read_split(step);
    } else {
      check(type == "ByteLevel", "pre_tokenizer is '{}'; supported are ByteLevel, Split and a Sequence of them", type);
      check(!flag(step, "add_prefix_space"), "pre_tokenizer ByteLevel adds a prefix space, which is not supported");
      // use_regex is on when absent.
      if (optional(step, "use_regex").is_null() || flag(step, "use_regex")) {
        model_.split_patterns.push_back(kGpt2SplitPattern);
      }
    }
  }

  std::optional<int32_t> added_id(std::string_view content) const {
    for (const AddedToken& token : model_.added_tokens) {
      if (token.content == content) return token.id;
    }
    return std::nullopt;
  }

  std::optional<int32_t> configured_marker(const Json& config, const char* key) const {
    const Json& value = optional(config, key);
    if (value.is_null()) return std::nullopt;
    const Json& content = value.is_object() ? optional(value, "content") : value;
    check(content.is_string(), "{} in tokenizer_config.json is {}, expected a string", key, value.dump());
    const std::optional<int32_t> id = added_id(content.get_ref<const std::string&>());
    check(id.has_value(), "{} in tokenizer_config.json is {}, which is not an added token", key, content.dump());
    return id;
  }

  template <size_t kCount>
  std::optional<int32_t> first_known(const char* const (&names)[kCount]) const {
    for (const char* known : names) {
      if (const std::optional<int32_t> id = added_id(known)) return id;
    }
    return std::nullopt;
  }

  void read_markers(std::string_view config_text) {
    if (config_text.empty()) {
      model_.bos_id = first_known(kBosNames);
      model_.eos_id = first_known(kEosNames);
      return;
    }
    const Json config = parse(config_text, "tokenizer_config.json");
    check(config.is_object(), "tokenizer_config.json is {}, expected an object", config.type_name());
    model_.bos_id = configured_marker(config, "bos_token");
    model_.eos_id = configured_marker(config, "eos_token");
  }

  std::string name_;
  BpeModel model_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

BpeModel parse_tokenizer_json(std::string_view json, std::string_view config, std::string_view name) {
  return Reader(name).read(json, config);
}

}  // namespace tutti::io
