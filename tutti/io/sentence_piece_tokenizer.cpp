#include "tutti/io/sentence_piece_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/added_token_splitter.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/io/utf8.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

using Prefix = SentencePieceModel::Prefix;

// The text with `to` in the place of each `from`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  while (true) {
    const size_t at = text.find(from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += to;
    text.remove_prefix(at + from.size());
  }
}

std::string normalized(std::string_view text, bool prepends) {
  const std::string rest = replaced(text, " ", io::kSpaceCharacter);
  return prepends && !text.empty() ? std::string(io::kSpaceCharacter) + rest : rest;
}

}  // namespace

struct SentencePieceTokenizer::Engine {
  explicit Engine(const SentencePieceModel& of)
      : model(of),
        added_tokens(of.added_tokens,
                     [prepends = of.prefix == Prefix::every_stretch](std::string_view text, std::string& storage) {
                       storage = normalized(text, prepends);
                       return std::string_view(storage);
                     }),
        merger(of.bytes, of.merges) {
    for (size_t id = 0; id < of.vocab.size(); ++id) {
      if (of.vocab[id]) ids_of_text.emplace(*of.vocab[id], static_cast<int32_t>(id));
    }
    for (const AddedToken& token : of.added_tokens) {
      if (token.special) ids_of_text.erase(token.content);  // which text must not become
    }
  }

  // `stretch` is normalized.
  void encode_stretch(std::string_view stretch, bool is_at_start, std::vector<int32_t>& ids) const {
    if (stretch.empty()) return;
    std::string prefixed;
    const bool may_prefix =
        model.prefix == Prefix::unless_there || (model.prefix == Prefix::unless_there_at_start && is_at_start);
    if (may_prefix && !stretch.starts_with(io::kSpaceCharacter)) {
      prefixed = std::string(io::kSpaceCharacter).append(stretch);
      stretch = prefixed;
    }
    while (!stretch.empty()) {
      const size_t next =
          model.splits_words ? stretch.find(io::kSpaceCharacter, io::kSpaceCharacter.size()) : std::string_view::npos;
      const size_t end = word_end(stretch, next);
      encode_piece(stretch.substr(0, end), ids);
      stretch.remove_prefix(end);
    }
  }

  // A word goes to the next U+2581 behind its first character.
  size_t word_end(std::string_view stretch, size_t next) const {
    if (!model.splits_words) return stretch.size();
    if (!stretch.starts_with(io::kSpaceCharacter)) next = stretch.find(io::kSpaceCharacter);
    return std::min(next, stretch.size());
  }

  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
    if (model.ignores_merges) {
      const auto whole = ids_of_text.find(piece);
      if (whole != ids_of_text.end()) return ids.push_back(whole->second);
    }
    std::vector<int32_t> tokens;
    bool was_unknown = false;
    while (!piece.empty()) {
      const std::string_view character = piece.substr(0, std::max<size_t>(io::utf8_sequence_nbytes(piece), 1));
      piece.remove_prefix(character.size());
      const bool is_unknown = !add_character(character, tokens);
      const bool is_fused = is_unknown && was_unknown && model.bytes.fuses_unknown;
      if (is_unknown && !is_fused && model.bytes.unknown) tokens.push_back(*model.bytes.unknown);
      was_unknown = is_unknown;
    }
    merger.merge(tokens, ids);
  }

  // The token of a character, or those of its bytes; false when there are none.
  bool add_character(std::string_view character, std::vector<int32_t>& tokens) const {
    const auto known = ids_of_text.find(character);
    if (known != ids_of_text.end()) return tokens.push_back(known->second), true;
    const size_t before = tokens.size();
    for (const char byte : character) {
      const int32_t id = model.bytes.ids[static_cast<unsigned char>(byte)];
      if (id == io::ByteTokens::kNoToken) return tokens.resize(before), false;
      tokens.push_back(id);
    }
    return true;
  }

  const SentencePieceModel& model;
  io::AddedTokenSplitter added_tokens;
  io::BpeMerger merger;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_of_text;
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model)
    : model_(std::move(model)),
      engine_(std::make_unique<Engine>(model_)),
      fingerprint_(hash64(io::tokenizer_json_of(model_, false))) {
  tokens_.resize(model_.vocab.size());
  const auto spaced = [](const std::string& text) { return replaced(text, io::kSpaceCharacter, " "); };
  for (size_t id = 0; id < model_.vocab.size(); ++id) {
    if (model_.vocab[id]) tokens_[id] = {spaced(*model_.vocab[id]), true, false};
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const int32_t id = model_.bytes.ids[byte];
    if (id != io::ByteTokens::kNoToken)
      tokens_[static_cast<size_t>(id)].bytes = std::string(1, static_cast<char>(static_cast<unsigned char>(byte)));
  }
  for (const AddedToken& token : model_.added_tokens) {
    if (token.id >= std::ssize(tokens_)) tokens_.resize(static_cast<size_t>(token.id) + 1);
    tokens_[static_cast<size_t>(token.id)] = {token.special ? token.content : spaced(token.content), true,
                                              token.special};
  }
  // The markers are not in tokenizer.json, and change what documents become.
  fingerprint_ = hash64(fmt::format("{} {}", model_.bos_id.value_or(-1), model_.eos_id.value_or(-1)), fingerprint_);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::save_with_markers(const std::string& folder) const {
  const std::filesystem::path place(folder);
  write_file_atomically((place / "tokenizer_config.json").string(),
                        io::markers_json({model_.bos_id, model_.eos_id}, model_.added_tokens));
  write_file_atomically((place / "tokenizer.json").string(), to_json());
}

void SentencePieceTokenizer::encode_into(std::string_view text, std::vector<int32_t>& ids,
                                         const EncodeOptions& options) const {
  const auto append = [&](const std::vector<int32_t>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
  if (options.add_special_tokens) append(model_.frame.before);
  bool is_at_start = true;
  engine_->added_tokens.split(
      text, options.parse_special,
      [&](std::string_view stretch) {
        engine_->encode_stretch(stretch, is_at_start, ids);
        is_at_start = false;
      },
      [&](int32_t id) {
        ids.push_back(id);
        is_at_start = false;
      });
  if (options.add_special_tokens) append(model_.frame.after);
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text = Tokenizer::decode(ids, skip_special);
  if (model_.strips_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string_view SentencePieceTokenizer::token_bytes(int32_t id) const {
  TUTTI_CHECK(has_token(id), "tokenizer {} has no token {}; ids are 0 to {}", name(), id, vocab_size() - 1);
  return tokens_[static_cast<size_t>(id)].bytes;
}

bool SentencePieceTokenizer::has_token(int32_t id) const {
  return id >= 0 && id < std::ssize(tokens_) && tokens_[static_cast<size_t>(id)].exists;
}

bool SentencePieceTokenizer::is_special(int32_t id) const {
  return id >= 0 && id < std::ssize(tokens_) && tokens_[static_cast<size_t>(id)].special;
}

std::string SentencePieceTokenizer::name() const { return fmt::format("sentencepiece-{}", vocab_size()); }

}  // namespace tutti
