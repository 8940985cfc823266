#include "tutti/io/sentence_piece_model.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/io/utf8.h"
#include "tutti/runtime/json_document.h"

namespace tutti::io {
namespace {

using Prefix = SentencePieceModel::Prefix;

constexpr const char* kConfigFile = "tokenizer_config.json";

class Reader {
 public:
  SentencePieceModel read(const JsonDocument& tokenizer, const JsonDocument* config) {
    const JsonValue top = tokenizer.top(), model = top.at("model");
    read_vocab(model.at("vocab"));
    read_options(model);
    read_merges(model.at("merges"));
    const auto in_vocab = [this](int32_t id) {
      return id < std::ssize(model_.vocab) && model_.vocab[static_cast<size_t>(id)].has_value();
    };
    model_.added_tokens = read_added_tokens(top, {.ids = ids_, .has_token = in_vocab});
    read_normalizer(top.find_set("normalizer"));
    read_pre_tokenizer(top.find_set("pre_tokenizer"));
    if (!is_spaced_) top.fail("neither the normalizer nor the pre_tokenizer replaces spaces by U+2581");
    if (!is_normalized_) forget_needless_normalized(model_.added_tokens);
    read_decoder(top, top.find_set("decoder"));
    model_.frame = read_post_processor(top, [&](int32_t id) {
      const auto has_id = [id](const AddedToken& token) { return token.id == id; };
      return in_vocab(id) || std::any_of(model_.added_tokens.begin(), model_.added_tokens.end(), has_id);
    });
    const DocumentMarkers markers = read_document_markers(config, model_.added_tokens);
    model_.bos_id = markers.bos, model_.eos_id = markers.eos;
    return std::move(model_);
  }

 private:
  void read_vocab(const JsonValue& vocab) {
    if (!vocab.is_object()) vocab.fail("is {}, expected an object", vocab.shown());
    model_.bytes.ids.fill(ByteTokens::kNoToken);
    for (const auto& [key, value] : vocab) {
      const int32_t id = token_id_of(value);
      const std::string text(key);
      if (id >= std::ssize(model_.vocab)) model_.vocab.resize(static_cast<size_t>(id) + 1);
      if (model_.vocab[static_cast<size_t>(id)].has_value()) value.fail("is {}, and another token has this id", id);
      if (const std::optional<uint8_t> byte = byte_of_token(text)) model_.bytes.ids[*byte] = id;
      model_.vocab[static_cast<size_t>(id)] = text;
      ids_.emplace(text, id);
    }
  }

  void read_options(const JsonValue& model) {
    const auto unknown = model.find_set("unk_token");
    if (unknown && !unknown->text().empty()) {
      const auto found = ids_.find(unknown->string());
      if (found == ids_.end()) unknown->fail("is {}, which is not in model.vocab", unknown->shown());
      model_.bytes.unknown = found->second;
      model_.bytes.fuses_unknown = flag_of(model, "fuse_unk");
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto value = model.find_set(key);
      const bool is_none =
          !value || (value->is_text() && value->text().empty()) || (value->is_number() && value->number() == 0);
      if (!is_none) value->fail("is {}, which is not supported with byte_fallback", value->shown());
    }
    model_.ignores_merges = flag_of(model, "ignore_merges");
  }

  void read_merges(const JsonValue& merges) {
    if (!merges.is_array()) merges.fail("is {}, expected an array", merges.shown());
    std::unordered_set<uint64_t, PairKeyHash> seen;
    for (const auto& [none, merge] : merges) {
      const auto [left, right] = merge_parts(merge);
      const auto known = [&](const std::string& text) {
        const auto found = ids_.find(text);
        if (found == ids_.end()) merge.fail("uses '{}', which is not in model.vocab", text);
        return found->second;
      };
      const BpeMerge made{known(left), known(right), known(left + right)};
      if (!seen.insert(pair_key(made.left, made.right)).second) merge.fail("is in the list twice");
      model_.merges.push_back(made);
    }
  }

  static bool is_space(const std::optional<JsonValue>& text, std::string_view space) {
    return text && text->is_text() && text->text() == space;
  }

  void read_normalizer(const std::optional<JsonValue>& step) {
    const std::string type = step_type(step);
    is_normalized_ = is_normalized_ || type != "none";
    if (type == "Sequence") {
      const JsonValue steps = step->at("normalizers");
      if (!steps.is_array()) steps.fail("is {}, expected an array", steps.shown());
      for (const auto& [none, inner] : steps) {
        if (step_type(inner) == "Sequence") inner.fail("is a Sequence inside another");
        read_normalizer(inner);
      }
    } else if (type == "Prepend") {
      if (!is_space(step->find_set("prepend"), kSpaceCharacter))
        step->fail("puts something else than U+2581 before texts");
      model_.prefix = Prefix::every_stretch;
    } else if (type == "Replace") {
      if (!is_space(step->at("pattern").find_set("String"), " ") ||
          !is_space(step->find_set("content"), kSpaceCharacter))
        step->fail("replaces something else than \" \" by U+2581");
      is_spaced_ = true;
    } else if (step) {
      step->fail("is '{}'; supported with byte_fallback are Prepend, Replace and a Sequence of them", type);
    }
  }

  void read_pre_tokenizer(const std::optional<JsonValue>& step) {
    const std::string type = step_type(step);
    if (!step) return;
    if (type == "Split" && is_spaced_ && is_space(step->at("pattern").find_set("String"), " ")) return;
    if (type != "Metaspace")
      step->fail(
          "is '{}'; supported with byte_fallback are none, Metaspace, and Split at the spaces that the normalizer "
          "has replaced",
          type);
    if (!is_space(step->find_set("replacement"), kSpaceCharacter)) step->fail("has another replacement than U+2581");
    const auto scheme = step->find_set("prepend_scheme");
    const std::string place = scheme ? scheme->string() : flag_of(*step, "add_prefix_space", true) ? "always" : "never";
    if (place != "always" && place != "first" && place != "never")
      scheme->fail("is {}; expected \"always\", \"first\" or \"never\"", scheme->shown());
    if (model_.prefix != Prefix::never && place != "never")
      step->fail("puts U+2581 before texts, as the normalizer does");
    if (place != "never") model_.prefix = place == "always" ? Prefix::unless_there : Prefix::unless_there_at_start;
    model_.splits_words = flag_of(*step, "split", true);
    is_spaced_ = true;
  }

  void read_decoder(const JsonValue& top, const std::optional<JsonValue>& decoder) {
    if (step_type(decoder) == "Metaspace") {
      model_.strips_space = model_.prefix != Prefix::never;
      return;
    }
    if (step_type(decoder) != "Sequence")
      top.fail("decoder is '{}', expected Metaspace or a Sequence", step_type(decoder));
    const JsonValue steps = decoder->at("decoders");
    if (!steps.is_array()) steps.fail("is {}, expected an array", steps.shown());
    std::string types;
    for (const auto& [none, step] : steps) {
      const std::string type = step_type(step);
      types += (types.empty() ? "" : ", ") + type;
      if (type == "Replace" && (!is_space(step.at("pattern").find_set("String"), kSpaceCharacter) ||
                                !is_space(step.find_set("content"), " ")))
        step.fail("replaces something else than U+2581 by \" \"");
      if (type != "Strip") continue;
      const auto number = [&](const char* key) { return step.find_set(key) ? step.at(key).whole() : 0; };
      if (!is_space(step.find_set("content"), " ") || number("start") != 1 || number("stop") != 0)
        step.fail("strips something else than one space at the start");
      model_.strips_space = true;
    }
    if (types != "Replace, ByteFallback, Fuse" && types != "Replace, ByteFallback, Fuse, Strip")
      steps.fail("has the steps {}; expected Replace, ByteFallback, Fuse, and Strip or nothing", types);
  }

  SentencePieceModel model_;
  std::unordered_map<std::string, int32_t> ids_;
  bool is_spaced_ = false, is_normalized_ = false;
};

}  // namespace

std::optional<uint8_t> byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  const bool is_upper = std::none_of(text.begin() + 3, text.begin() + 5, [](char c) { return c >= 'a' && c <= 'f'; });
  if (error != std::errc() || end != text.data() + 5 || !is_upper) return std::nullopt;
  return byte;
}

SentencePieceModel parse_sentence_piece_json(std::string_view json, std::string_view config, std::string_view name) {
  const JsonDocument tokenizer(json, {.name = std::string(name)});
  if (config.empty()) return Reader().read(tokenizer, nullptr);
  const JsonDocument beside(config, {.name = fmt::format("{} of {}", kConfigFile, name)});
  return Reader().read(tokenizer, &beside);
}

std::vector<BpeMerge> merges_by_score(std::span<const std::string> tokens, std::span<const float> scores,
                                      const std::vector<bool>& merges_into) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (merges_into[id]) ids.emplace(tokens[id], static_cast<int32_t>(id));
  }
  std::vector<BpeMerge> merges;
  std::vector<BpeMerge> of_token;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!merges_into[id]) continue;
    const std::string_view token = tokens[id];
    of_token.clear();
    for (size_t cut = std::max<size_t>(utf8_sequence_nbytes(token), 1); cut < token.size();
         cut += std::max<size_t>(utf8_sequence_nbytes(token.substr(cut)), 1)) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end())
        of_token.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
    std::sort(of_token.begin(), of_token.end(), [](const BpeMerge& a, const BpeMerge& b) {
      return std::pair(a.left, a.right) < std::pair(b.left, b.right);
    });
    merges.insert(merges.end(), of_token.begin(), of_token.end());
  }
  std::stable_sort(merges.begin(), merges.end(), [&](const BpeMerge& a, const BpeMerge& b) {
    return scores[static_cast<size_t>(a.result)] > scores[static_cast<size_t>(b.result)];
  });
  return merges;
}

}  // namespace tutti::io
