#include "tutti/io/bpe_model.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/regex_split.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/runtime/json_document.h"

namespace tutti::io {

const char* const kGpt2SplitPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kQwenSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const kLlama3SplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kDigitPattern = R"(\p{N})";

namespace {

constexpr const char* kConfigFile = "tokenizer_config.json";

class Reader {
 public:
  BpeModel read(const JsonDocument& tokenizer, const JsonDocument* config) {
    const JsonValue top = tokenizer.top(), model = top.at("model");
    read_vocab(model.at("vocab"));
    read_options(model);
    read_merges(model.at("merges"));
    const auto in_vocab = [this](int32_t id) {
      return id < static_cast<int32_t>(model_.vocab.size()) && model_.vocab[static_cast<size_t>(id)].has_value();
    };
    model_.added_tokens = read_added_tokens(top, {.ids = ids_, .has_token = in_vocab});
    read_normalizer(top.find_set("normalizer"));
    if (!model_.normalizes_nfc) forget_needless_normalized(model_.added_tokens);
    read_pre_tokenizer(top, top.find_set("pre_tokenizer"));
    check_decoder(top);
    model_.frame = read_post_processor(top, [&](int32_t id) { return in_vocab(id) || is_added(id); });
    const DocumentMarkers markers = read_document_markers(config, model_.added_tokens);
    model_.bos_id = markers.bos;
    model_.eos_id = markers.eos;
    return std::move(model_);
  }

 private:
  bool is_added(int32_t id) const {
    return std::any_of(model_.added_tokens.begin(), model_.added_tokens.end(),
                       [&](const AddedToken& token) { return token.id == id; });
  }

  void read_options(const JsonValue& model) {
    const auto type = model.find_set("type");
    if (type && type->text() != "BPE") type->fail("is {}, only BPE is supported", type->shown());
    read_unknown(model);
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto value = model.find_set(key);
      const bool is_none =
          !value || (value->is_text() && value->text().empty()) || (value->is_number() && value->number() == 0);
      if (!is_none) value->fail("is {}; byte-level BPE has none", value->shown());
    }
    if (flag_of(model, "byte_fallback")) model.at("byte_fallback").fail("is true; only byte-level BPE is supported");
    model_.ignores_merges = flag_of(model, "ignore_merges");
  }

  // The token is of no use where every byte has one.
  void read_unknown(const JsonValue& model) {
    const auto unknown = model.find_set("unk_token");
    if (!unknown || unknown->text().empty()) return;
    const auto found = ids_.find(unknown->string());
    if (found == ids_.end()) unknown->fail("is {}, which is not in model.vocab", unknown->shown());
    const auto& bytes = model_.bytes.ids;
    if (std::find(bytes.begin(), bytes.end(), ByteTokens::kNoToken) == bytes.end()) return;
    model_.bytes.unknown = found->second;
    model_.bytes.fuses_unknown = flag_of(model, "fuse_unk");
  }

  void read_vocab(const JsonValue& vocab) {
    if (!vocab.is_object()) vocab.fail("is {}, expected an object", vocab.shown());
    for (const auto& [key, value] : vocab) {
      const int32_t id = token_id_of(value);
      const std::string characters(key);
      if (id >= static_cast<int32_t>(model_.vocab.size())) model_.vocab.resize(static_cast<size_t>(id) + 1);
      if (model_.vocab[id].has_value()) value.fail("is {}, and another token has this id", id);
      // A token outside the alphabet cannot come out of merging bytes; it keeps its own text.
      model_.vocab[id] = from_byte_alphabet(characters).value_or(characters);
      ids_.emplace(characters, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
      if (found == ids_.end() && is_needed(static_cast<unsigned char>(byte)))
        vocab.fail("has no token for byte {}; printable ASCII, tab and line feed need one each", byte);
      model_.bytes.ids[static_cast<size_t>(byte)] = found == ids_.end() ? ByteTokens::kNoToken : found->second;
    }
  }

  int32_t merge_part(const JsonValue& merge, const std::string& characters) const {
    const auto found = ids_.find(characters);
    if (found == ids_.end()) merge.fail("uses '{}', which is not in model.vocab", characters);
    return found->second;
  }

  void read_merges(const JsonValue& merges) {
    if (!merges.is_array()) merges.fail("is {}, expected an array", merges.shown());
    std::unordered_set<uint64_t, PairKeyHash> seen;
    for (const auto& [none, merge] : merges) {
      const auto [left, right] = merge_parts(merge);
      const BpeMerge made{merge_part(merge, left), merge_part(merge, right), merge_part(merge, left + right)};
      if (!seen.insert(pair_key(made.left, made.right)).second) merge.fail("is in the list twice");
      model_.merges.push_back(made);
    }
  }

  void read_normalizer(const std::optional<JsonValue>& step) {
    const std::string type = step_type(step);
    if (type == "Sequence") {
      const JsonValue steps = step->at("normalizers");
      if (!steps.is_array()) steps.fail("is {}, expected an array", steps.shown());
      for (const auto& [none, inner] : steps) {
        if (step_type(inner) == "Sequence") inner.fail("is a Sequence inside another");
        read_normalizer(inner);
      }
      return;
    }
    if (step && type != "NFC") step->fail("is '{}'; supported are none, NFC and a Sequence of NFC", type);
    model_.normalizes_nfc = model_.normalizes_nfc || type == "NFC";
  }

  static void check_decoder(const JsonValue& top) {
    auto decoder = top.find_set("decoder");
    if (step_type(decoder) == "Sequence") {
      const JsonValue steps = decoder->at("decoders");
      if (!steps.is_array() || steps.size() != 1) steps.fail("is {}, expected only ByteLevel", steps.shown());
      decoder = (*steps.begin()).value;
    }
    if (step_type(decoder) != "ByteLevel") top.fail("decoder is '{}', expected ByteLevel", step_type(decoder));
  }

  void read_split(const JsonValue& split) {
    const JsonValue pattern = split.at("pattern");
    const auto behavior = split.find_set("behavior");
    if (!behavior || behavior->text() != "Isolated" || flag_of(split, "invert"))
      split.fail("has behavior {} and invert {}; only Isolated without invert is supported",
                 behavior ? behavior->shown() : "none", flag_of(split, "invert"));
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
    const std::string type = step_type(step);
    if (type == "Sequence") {
      const JsonValue steps = step->at("pretokenizers");
      if (!steps.is_array() || steps.size() == 0) steps.fail("is {}, expected steps", steps.shown());
      size_t left = steps.size();
      for (const auto& [none, inner] : steps) {
        const std::string inner_type = step_type(inner);
        if (inner_type == "Sequence") inner.fail("is a Sequence inside another");
        if (--left == 0 && inner_type != "ByteLevel") steps.fail("ends with '{}', expected ByteLevel", inner_type);
        if (left > 0 && inner_type == "ByteLevel") inner.fail("is ByteLevel, which must be the last step");
        read_pre_tokenizer(steps, inner);
      }
    } else if (type == "Split") {
      read_split(*step);
    } else if (type == "Digits") {
      model_.split_patterns.push_back(flag_of(*step, "individual_digits") ? kDigitPattern : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      if (flag_of(*step, "add_prefix_space")) model_.prefix_space_after = model_.split_patterns.size();
      if (flag_of(*step, "use_regex", true)) model_.split_patterns.push_back(kGpt2SplitPattern);
    } else {
      (step ? *step : holder)
          .fail("pre_tokenizer is '{}'; supported are ByteLevel, Split, Digits and a Sequence of them", type);
    }
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
