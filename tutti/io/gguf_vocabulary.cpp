#include "tutti/io/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/model_metadata.h"
#include "tutti/io/sentence_piece_tokenizer.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/io/word_piece_tokenizer.h"

namespace tutti {

std::span<const GgufSplitting> gguf_splittings() {
  const std::vector<std::string> qwen{io::kQwenSplitPattern}, llama{io::kLlama3SplitPattern};
  static const std::vector<GgufSplitting> instance = {
      {.pre = "gpt-2", .split_patterns = {io::kGpt2SplitPattern}},
      {.pre = "smollm", .split_patterns = {io::kDigitPattern, io::kGpt2SplitPattern}},
      {.pre = "qwen2", .split_patterns = qwen, .normalizes_nfc = true},
      {.pre = "deepseek-r1-qwen", .split_patterns = qwen, .normalizes_nfc = true},
      {.pre = "llama-bpe", .split_patterns = llama, .ignores_merges = true, .adds_bos = true},
      {.pre = "llama3", .split_patterns = llama, .ignores_merges = true, .adds_bos = true},
      {.pre = "llama-v3", .split_patterns = llama, .ignores_merges = true, .adds_bos = true}};
  return instance;
}

namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Published ones have at most 93. All cuts of a token are looked up.
constexpr size_t kLongestPiece = 256;
constexpr std::string_view kWordBegin = io::kSpaceCharacter;

std::string family_names() {
  std::string names;
  for (const GgufSplitting& known : gguf_splittings()) names += (names.empty() ? "" : ", ") + std::string(known.pre);
  return names;
}

class VocabularyReader {
 public:
  VocabularyReader(const GgufVocabulary& vocabulary, std::string_view name) : from_(vocabulary), name_(name) {
    const size_t count = from_.tokens.size();
    TUTTI_CHECK(count > 0, "{}: tokenizer.ggml.tokens is empty or missing", name_);
    TUTTI_CHECK(count <= static_cast<size_t>(io::kMaxTokenId) + 1,
                "{}: tokenizer.ggml.tokens has {} entries; at most {} are supported", name_, count,
                io::kMaxTokenId + 1);
    TUTTI_CHECK(from_.token_types.empty() || from_.token_types.size() == count,
                "{}: tokenizer.ggml.token_type has {} entries, and tokenizer.ggml.tokens {}", name_,
                from_.token_types.size(), count);
    for (size_t id = 0; id < from_.token_types.size(); ++id) {
      const int32_t type = from_.token_types[id];
      TUTTI_CHECK(type >= kNormal && type <= kByte, "{}: token {} is of type {}; types are 1 to 6", name_, id, type);
    }
  }

  std::unique_ptr<Tokenizer> byte_level() const {
    const GgufSplitting& family = family_of_pre();
    BpeModel model;
    model.split_patterns = family.split_patterns;
    model.normalizes_nfc = family.normalizes_nfc;
    model.ignores_merges = family.ignores_merges;
    std::unordered_map<std::string_view, int32_t> ids;
    for (size_t id = 0; id < from_.tokens.size(); ++id) {
      const std::string& token = from_.tokens[id];
      TUTTI_CHECK(type_of(id) != kByte,
                  "{}: token {} is of type 6, a byte of a vocabulary with byte fallback, which \"gpt2\" has not", name_,
                  id);
      const bool is_added = type_of(id) != kNormal && type_of(id) != kUnused;
      if (!is_added) ids.emplace(token, static_cast<int32_t>(id));
      // A token outside the alphabet cannot come out of merging bytes; it keeps its own text.
      model.vocab.emplace_back(is_added ? token : io::from_byte_alphabet(token).value_or(token));
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids.find(io::to_byte_alphabet(std::string(1, static_cast<char>(byte))));
      TUTTI_CHECK(
          found != ids.end() || !io::is_needed(static_cast<unsigned char>(byte)),
          "{}: tokenizer.ggml.tokens has no token for byte {}; printable ASCII, tab and line feed need one each", name_,
          byte);
      model.bytes.ids[static_cast<size_t>(byte)] = found == ids.end() ? io::ByteTokens::kNoToken : found->second;
    }
    model.merges = listed_merges(ids);
    model.added_tokens = added_tokens();
    model.bos_id = id_of("bos_token_id", from_.bos_id);
    model.eos_id = id_of("eos_token_id", from_.eos_id);
    if (from_.adds_bos.value_or(family.adds_bos)) model.frame.before = {needed("bos_token_id", model.bos_id)};
    if (from_.adds_eos.value_or(false)) model.frame.after = {needed("eos_token_id", model.eos_id)};
    return std::make_unique<BpeTokenizer>(std::move(model));
  }

  std::unique_ptr<Tokenizer> by_scores() const {
    TUTTI_CHECK(from_.scores.size() == from_.tokens.size(),
                "{}: tokenizer.ggml.scores has {} entries, and tokenizer.ggml.tokens {}", name_, from_.scores.size(),
                from_.tokens.size());
    std::vector<bool> merges_into;
    for (size_t id = 0; id < from_.tokens.size(); ++id) {
      TUTTI_CHECK(!std::isnan(from_.scores[id]), "{}: tokenizer.ggml.scores[{}] is no number", name_, id);
      TUTTI_CHECK(from_.tokens[id].size() <= kLongestPiece, "{}: token {} has {} bytes; at most {} are supported",
                  name_, id, from_.tokens[id].size(), kLongestPiece);
      merges_into.push_back(comes_out_of_text(id));
    }
    SentencePieceModel model = pieces(from_.adds_space.value_or(true));
    model.merges = io::merges_by_score(from_.tokens, from_.scores, merges_into);
    return std::make_unique<SentencePieceTokenizer>(std::move(model));
  }

  // llama.cpp cuts the text where newlines begin and end, of which no token holds both; so no merge goes over a cut.
  std::unique_ptr<Tokenizer> by_ranks() const {
    std::unordered_map<std::string_view, int32_t> ids;
    for (size_t id = 0; id < from_.tokens.size(); ++id) {
      if (comes_out_of_text(id)) ids.emplace(from_.tokens[id], static_cast<int32_t>(id));
    }
    SentencePieceModel model = pieces(from_.adds_space.value_or(false));
    TUTTI_CHECK(!from_.merges.empty(), "{}: tokenizer.ggml.merges is empty or missing", name_);
    model.merges = listed_merges(ids);
    return std::make_unique<SentencePieceTokenizer>(std::move(model));
  }

  std::unique_ptr<Tokenizer> word_piece() const {
    WordPieceModel model;
    for (size_t id = 0; id < from_.tokens.size(); ++id) model.vocab.emplace_back(word_piece_of(id));
    model.unknown_id = needed("unknown_token_id", id_of("unknown_token_id", from_.unknown_id));
    model.added_tokens = added_tokens();
    // Older files give [CLS] as BOS and [SEP] as EOS.
    const auto cls = id_of("cls_token_id", from_.cls_id ? from_.cls_id : from_.bos_id);
    const auto separator = id_of("seperator_token_id", from_.separator_id ? from_.separator_id : from_.eos_id);
    if (from_.adds_bos.value_or(true)) model.frame.before = {needed("cls_token_id", cls)};
    if (from_.adds_eos.value_or(true)) model.frame.after = {needed("seperator_token_id", separator)};
    model.bos_id = id_of("bos_token_id", from_.bos_id);
    model.eos_id = id_of("eos_token_id", from_.eos_id);
    return std::make_unique<WordPieceTokenizer>(std::move(model));
  }

 private:
  // Control tokens and bytes do not come out of merging text.
  bool comes_out_of_text(size_t id) const {
    const int32_t type = type_of(id);
    return type == kNormal || type == kUserDefined || type == kUnused;
  }

  // All but the merges of byte pair encoding of characters.
  SentencePieceModel pieces(bool adds_space) const {
    SentencePieceModel model;
    model.bytes.ids.fill(io::ByteTokens::kNoToken);
    for (size_t id = 0; id < from_.tokens.size(); ++id) {
      const int32_t type = type_of(id);
      model.vocab.emplace_back(from_.tokens[id]);
      if (type != kByte) continue;
      const std::optional<uint8_t> byte = io::byte_of_token(from_.tokens[id]);
      TUTTI_CHECK(byte.has_value(), "{}: token {} '{}' is of type 6, and no byte such as <0x0A>", name_, id,
                  from_.tokens[id]);
      model.bytes.ids[*byte] = static_cast<int32_t>(id);
    }
    std::unordered_set<std::string_view> texts;
    for (size_t id = 0; id < from_.tokens.size(); ++id)
      TUTTI_CHECK(texts.insert(from_.tokens[id]).second, "{}: token {} '{}' is there twice", name_, id,
                  from_.tokens[id]);
    model.added_tokens = added_tokens();
    model.prefix = adds_space ? SentencePieceModel::Prefix::every_stretch : SentencePieceModel::Prefix::never;
    model.strips_space = adds_space;
    model.bytes.unknown = id_of("unknown_token_id", from_.unknown_id);
    model.bytes.fuses_unknown = true;
    model.bos_id = id_of("bos_token_id", from_.bos_id);
    model.eos_id = id_of("eos_token_id", from_.eos_id);
    if (from_.adds_bos.value_or(true)) model.frame.before = {needed("bos_token_id", model.bos_id)};
    if (from_.adds_eos.value_or(false)) model.frame.after = {needed("eos_token_id", model.eos_id)};
    return model;
  }

  int32_t type_of(size_t id) const { return from_.token_types.empty() ? int32_t{kNormal} : from_.token_types[id]; }

  const GgufSplitting& family_of_pre() const {
    TUTTI_CHECK(from_.pre.has_value(),
                "{}: has no tokenizer.ggml.pre, which names how text is split, so ids would be wrong; known are {}",
                name_, family_names());
    const auto found = std::find_if(gguf_splittings().begin(), gguf_splittings().end(),
                                    [&](const GgufSplitting& family) { return family.pre == *from_.pre; });
    TUTTI_CHECK(found != gguf_splittings().end(), "{}: tokenizer.ggml.pre is '{}'; known are {}", name_, *from_.pre,
                family_names());
    return *found;
  }

  std::optional<int32_t> id_of(const char* key, std::optional<int64_t> id) const {
    if (!id) return std::nullopt;
    TUTTI_CHECK(*id >= 0 && *id < static_cast<int64_t>(from_.tokens.size()),
                "{}: tokenizer.ggml.{} is {}, and ids are 0 to {}", name_, key, *id, from_.tokens.size() - 1);
    return static_cast<int32_t>(*id);
  }

  int32_t needed(const char* key, std::optional<int32_t> id) const {
    TUTTI_CHECK(id.has_value(), "{}: has no tokenizer.ggml.{}, which its text is encoded with", name_, key);
    return *id;
  }

  std::vector<AddedToken> added_tokens() const {
    std::vector<AddedToken> added;
    std::unordered_set<std::string_view> contents;
    for (size_t id = 0; id < from_.tokens.size(); ++id) {
      const int32_t type = type_of(id);
      if (type != kUnknown && type != kControl && type != kUserDefined) continue;
      const std::string& content = from_.tokens[id];
      TUTTI_CHECK(!content.empty(), "{}: token {} is of type {} and empty", name_, id, type);
      TUTTI_CHECK(contents.insert(content).second, "{}: token {} '{}' is there twice", name_, id, content);
      added.push_back({.id = static_cast<int32_t>(id), .content = content, .special = type != kUserDefined});
    }
    return added;
  }

  // The merges of the file, in its order, by the ids of their tokens.
  std::vector<io::BpeMerge> listed_merges(const std::unordered_map<std::string_view, int32_t>& ids) const {
    std::vector<io::BpeMerge> merges;
    std::unordered_set<uint64_t, io::PairKeyHash> seen;
    std::string joined;
    for (size_t i = 0; i < from_.merges.size(); ++i) {
      const std::string_view merge = from_.merges[i];
      const size_t space = merge.find(' ', 1);
      TUTTI_CHECK(space != std::string_view::npos && space + 1 < merge.size(),
                  "{}: tokenizer.ggml.merges[{}] is '{}', expected two tokens with one space between", name_, i, merge);
      const auto known = [&](std::string_view part) {
        const auto found = ids.find(part);
        TUTTI_CHECK(found != ids.end(), "{}: tokenizer.ggml.merges[{}] uses '{}', which is not a normal token", name_,
                    i, part);
        return found->second;
      };
      joined = std::string(merge.substr(0, space)).append(merge.substr(space + 1));
      const io::BpeMerge made{known(merge.substr(0, space)), known(merge.substr(space + 1)), known(joined)};
      TUTTI_CHECK(seen.insert(io::pair_key(made.left, made.right)).second,
                  "{}: tokenizer.ggml.merges[{}] is in the list twice", name_, i);
      merges.push_back(made);
    }
    return merges;
  }

  // Words begin with U+2581 in the file, and their other tokens have no mark.
  std::string word_piece_of(size_t id) const {
    const std::string& token = from_.tokens[id];
    const bool is_bracketed = token.size() > 2 && token.front() == '[' && token.back() == ']';
    if (type_of(id) != kNormal || is_bracketed) return token;
    return token.starts_with(kWordBegin) ? token.substr(kWordBegin.size()) : "##" + token;
  }

  const GgufVocabulary& from_;
  const std::string_view name_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_gguf(const GgufVocabulary& vocabulary, std::string_view name) {
  TUTTI_CHECK(vocabulary.model == "gpt2" || vocabulary.model == "llama" || vocabulary.model == "gemma4" ||
                  vocabulary.model == "bert",
              "{}: tokenizer.ggml.model is '{}'; supported are gpt2 (byte-level BPE), llama (SentencePiece), gemma4 "
              "(the same with merges) and bert (WordPiece)",
              name, vocabulary.model);
  const VocabularyReader reader(vocabulary, name);
  if (vocabulary.model == "llama") return reader.by_scores();
  if (vocabulary.model == "gemma4") return reader.by_ranks();
  return vocabulary.model == "gpt2" ? reader.byte_level() : reader.word_piece();
}

namespace {

std::optional<int64_t> id_in(const ModelMetadata& metadata, const char* key) {
  const std::optional<MetadataField> field = metadata.find(fmt::format("tokenizer.ggml.{}", key));
  return field ? std::optional(field->whole(0)) : std::nullopt;
}
std::optional<bool> flag_in(const ModelMetadata& metadata, const char* key) {
  const std::optional<MetadataField> field = metadata.find(fmt::format("tokenizer.ggml.{}", key));
  return field ? std::optional(field->boolean()) : std::nullopt;
}
std::vector<std::string> texts_in(const ModelMetadata& metadata, const char* key) {
  const std::optional<MetadataField> field = metadata.find(fmt::format("tokenizer.ggml.{}", key));
  return field ? field->texts() : std::vector<std::string>();
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const ModelMetadata& metadata) {
  GgufVocabulary vocabulary{.model = metadata.at("tokenizer.ggml.model").text()};
  if (const auto pre = metadata.find("tokenizer.ggml.pre")) vocabulary.pre = pre->text();
  vocabulary.tokens = texts_in(metadata, "tokens");
  vocabulary.merges = texts_in(metadata, "merges");
  if (const auto types = metadata.find("tokenizer.ggml.token_type")) {
    for (const int64_t type : types->wholes(0, 1 << 8)) vocabulary.token_types.push_back(static_cast<int32_t>(type));
  }
  if (const auto scores = metadata.find("tokenizer.ggml.scores")) {
    for (const double score : scores->numbers()) vocabulary.scores.push_back(static_cast<float>(score));
  }
  vocabulary.bos_id = id_in(metadata, "bos_token_id");
  vocabulary.eos_id = id_in(metadata, "eos_token_id");
  vocabulary.unknown_id = id_in(metadata, "unknown_token_id");
  vocabulary.separator_id = id_in(metadata, "seperator_token_id");
  vocabulary.cls_id = id_in(metadata, "cls_token_id");
  vocabulary.adds_bos = flag_in(metadata, "add_bos_token");
  vocabulary.adds_eos = flag_in(metadata, "add_eos_token");
  vocabulary.adds_space = flag_in(metadata, "add_space_prefix");
  return vocabulary;
}

}  // namespace tutti
