#include "tutti/io/word_piece_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <unordered_map>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/added_token_splitter.h"
#include "tutti/io/tokenizer_json.h"
#include "tutti/io/utf8.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

constexpr size_t kRememberedWords = size_t{1} << 16;
constexpr size_t kRememberedWordNbytes = 48;

using Ids = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

int64_t character_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// Replaces every `from` in `text`, left to right.
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// In this order, in each token with the space before it.
constexpr std::pair<const char*, const char*> kCleanups[] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

struct WordPieceTokenizer::Engine {
  explicit Engine(const WordPieceModel& model)
      : added_tokens(model.added_tokens,
                     [options = model.normalization](std::string_view text, std::string& storage) {
                       storage = io::bert_normalized(text, options);
                       return std::string_view(storage);
                     }),
        max_characters(model.max_characters_per_word),
        unknown(model.unknown_id) {
    for (size_t id = 0; id < model.vocab.size(); ++id) {
      if (!model.vocab[id]) continue;
      const std::string& token = *model.vocab[id];
      beginnings.emplace(token, static_cast<int32_t>(id));
      if (token.starts_with(model.continuation_prefix))
        continuations.emplace(token.substr(model.continuation_prefix.size()), static_cast<int32_t>(id));
      longest = std::max(longest, token.size());
    }
  }

  void piece_word(std::string_view word, std::vector<int32_t>& ids) const {
    const size_t before = ids.size();
    const auto give_up = [&] {
      ids.resize(before);
      ids.push_back(unknown);
    };
    if (character_count(word) > max_characters) return give_up();
    for (size_t begin = 0; begin < word.size();) {
      const Ids& tokens = begin == 0 ? beginnings : continuations;
      size_t end = std::min(word.size(), begin + longest);
      auto found = tokens.end();
      for (; end > begin; --end) {
        if (end < word.size() && (word[end] & 0xC0) == 0x80) continue;  // within a character
        found = tokens.find(word.substr(begin, end - begin));
        if (found != tokens.end()) break;
      }
      if (found == tokens.end()) return give_up();
      ids.push_back(found->second);
      begin = end;
    }
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids) {
    if (word.size() > kRememberedWordNbytes) return piece_word(word, ids);
    const auto known = remembered.find(word);
    if (known != remembered.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
    std::vector<int32_t> made;
    piece_word(word, made);
    ids.insert(ids.end(), made.begin(), made.end());
    if (remembered.size() == kRememberedWords) remembered.clear();
    remembered.emplace(word, std::move(made));
  }

  io::AddedTokenSplitter added_tokens;
  int64_t max_characters;
  int32_t unknown;
  Ids beginnings, continuations;  // the latter without their prefix
  size_t longest = 0;

  std::mutex mutex;  // guards what follows
  std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> remembered;
};

WordPieceTokenizer::WordPieceTokenizer(WordPieceModel model)
    : model_(std::move(model)), engine_(std::make_unique<Engine>(model_)) {
  tokens_.resize(model_.vocab.size());
  for (size_t id = 0; id < model_.vocab.size(); ++id) {
    if (!model_.vocab[id]) continue;
    const std::string& text = *model_.vocab[id];
    const bool continues = text.starts_with(model_.continuation_prefix);
    tokens_[id] = {continues ? text.substr(model_.continuation_prefix.size()) : text, true, false, continues};
  }
  for (const AddedToken& added : model_.added_tokens) {
    if (added.id >= static_cast<int32_t>(tokens_.size())) tokens_.resize(static_cast<size_t>(added.id) + 1);
    tokens_[static_cast<size_t>(added.id)] = {added.content, true, added.special, false};
  }
  WordPieceModel unframed = model_;
  unframed.frame = {};
  fingerprint_ = hash64(fmt::format("{} {}", model_.bos_id.value_or(-1), model_.eos_id.value_or(-1)),
                        hash64(io::tokenizer_json_of(unframed)));
}

WordPieceTokenizer::~WordPieceTokenizer() = default;

void WordPieceTokenizer::save_with_markers(const std::string& folder) const {
  const std::filesystem::path place(folder);
  write_file_atomically((place / "tokenizer_config.json").string(),
                        io::markers_json({model_.bos_id, model_.eos_id}, model_.added_tokens));
  write_file_atomically((place / "tokenizer.json").string(), to_json());
}

void WordPieceTokenizer::encode_into(std::string_view text, std::vector<int32_t>& ids,
                                     const EncodeOptions& options) const {
  const std::lock_guard lock(engine_->mutex);
  const auto append = [&](const std::vector<int32_t>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
  if (options.add_special_tokens) append(model_.frame.before);
  engine_->added_tokens.split(
      text, options.parse_special,
      [&](std::string_view stretch) {
        for (const std::string_view word : io::bert_words(stretch)) engine_->encode_word(word, ids);
      },
      [&](int32_t id) { ids.push_back(id); });
  if (options.add_special_tokens) append(model_.frame.after);
}

std::string WordPieceTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool is_first = true;
  for (const int32_t id : ids) {
    const Token& next = token(id);
    if (skip_special && next.special) continue;
    // A token that begins with the prefix keeps it at the start of the text, where there is no word to continue.
    std::string part =
        next.continues ? (is_first ? model_.continuation_prefix : "") + next.text : (is_first ? "" : " ") + next.text;
    if (model_.cleans_up) {
      for (const auto& [from, to] : kCleanups) replace_all(part, from, to);
    }
    text += part;
    is_first = false;
  }
  return text;
}

const WordPieceTokenizer::Token& WordPieceTokenizer::token(int32_t id) const {
  TUTTI_CHECK(id >= 0 && id < static_cast<int32_t>(tokens_.size()) && tokens_[static_cast<size_t>(id)].exists,
              "tokenizer {} has no token {}; ids are 0 to {}", name(), id, vocab_size() - 1);
  return tokens_[static_cast<size_t>(id)];
}

std::string_view WordPieceTokenizer::token_bytes(int32_t id) const { return token(id).text; }

bool WordPieceTokenizer::has_token(int32_t id) const {
  return id >= 0 && id < std::ssize(tokens_) && tokens_[static_cast<size_t>(id)].exists;
}

bool WordPieceTokenizer::is_special(int32_t id) const {
  return id >= 0 && id < static_cast<int32_t>(tokens_.size()) && tokens_[static_cast<size_t>(id)].special;
}

std::string WordPieceTokenizer::name() const { return fmt::format("wordpiece-{}", vocab_size()); }

}  // namespace tutti
