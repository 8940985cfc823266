#include "tutti/io/bpe_tokenizer.h"

#include <filesystem>
#include <mutex>
#include <unordered_map>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/added_token_splitter.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/nfc.h"
#include "tutti/io/regex_split.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

// Real text repeats its words: with this many remembered, a dictionary of 40 MB is merged once per 50 pieces.
constexpr size_t kRememberedPieces = size_t{1} << 17;
constexpr size_t kRememberedPieceNbytes = 48;

}  // namespace

struct BpeTokenizer::Engine {
  explicit Engine(const BpeModel& model)
      : added_tokens(model.added_tokens, model.normalizes_nfc ? io::NormalizeText(io::to_nfc) : nullptr),
        merger(model.bytes, model.merges),
        prefix_space_after(model.prefix_space_after) {
    for (const std::string& pattern : model.split_patterns) splitters.emplace_back(pattern);
    if (!model.ignores_merges) return;
    for (size_t id = 0; id < model.vocab.size(); ++id) {
      if (model.vocab[id]) whole_pieces.emplace(*model.vocab[id], static_cast<int32_t>(id));
    }
  }

  // Puts a space before each piece that does not begin with one.
  std::string_view with_prefix_spaces(std::string_view text) {
    spaced.clear();
    size_t begin = 0;
    for (size_t& end : piece_ends) {
      const std::string_view piece = text.substr(begin, end - begin);
      begin = end;
      if (!piece.starts_with(' ')) spaced += ' ';
      spaced += piece;
      end = spaced.size();
    }
    return spaced;
  }

  // `text` is normalized.
  void encode_stretch(std::string_view text, std::vector<int32_t>& ids) {
    piece_ends.assign(text.empty() ? 0 : 1, text.size());
    for (size_t step = 0; step <= splitters.size(); ++step) {
      if (prefix_space_after == step) text = with_prefix_spaces(text);
      if (step == splitters.size()) break;
      finer_ends.clear();
      size_t begin = 0;
      for (const size_t end : piece_ends) {
        splitters[step].split(text.substr(begin, end - begin), begin, finer_ends);
        begin = end;
      }
      piece_ends.swap(finer_ends);
    }
    size_t begin = 0;
    for (const size_t end : piece_ends) {
      encode_piece(text.substr(begin, end - begin), ids);
      begin = end;
    }
  }

  void merge_piece(std::string_view piece, std::vector<int32_t>& ids) const {
    const auto whole = whole_pieces.find(piece);
    if (whole != whole_pieces.end()) {
      ids.push_back(whole->second);
    } else {
      merger.encode(piece, ids);
    }
  }

  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
    if (piece.size() > kRememberedPieceNbytes) return merge_piece(piece, ids);
    const auto known = remembered.find(piece);
    if (known != remembered.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
    std::vector<int32_t> made;
    merge_piece(piece, made);
    ids.insert(ids.end(), made.begin(), made.end());
    if (remembered.size() == kRememberedPieces) remembered.clear();
    remembered.emplace(piece, std::move(made));
  }

  io::AddedTokenSplitter added_tokens;
  io::BpeMerger merger;
  std::vector<io::RegexSplitter> splitters;
  std::optional<size_t> prefix_space_after;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> whole_pieces;  // with ignores_merges only

  std::mutex mutex;  // guards what follows
  std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> remembered;
  std::vector<size_t> piece_ends, finer_ends;
  std::string spaced;
};

BpeTokenizer::BpeTokenizer(BpeModel model)
    : model_(std::move(model)),
      engine_(std::make_unique<Engine>(model_)),
      fingerprint_(hash64(io::unframed_tokenizer_json_of(model_))) {
  tokens_.resize(model_.vocab.size());
  for (size_t id = 0; id < model_.vocab.size(); ++id) {
    if (model_.vocab[id]) tokens_[id] = {*model_.vocab[id], true, false};
  }
  for (const AddedToken& token : model_.added_tokens) {
    if (token.id >= static_cast<int32_t>(tokens_.size())) tokens_.resize(static_cast<size_t>(token.id) + 1);
    tokens_[static_cast<size_t>(token.id)] = {token.content, true, token.special};
  }
  // The markers are not in tokenizer.json, and change what documents become.
  fingerprint_ = hash64(fmt::format("{} {}", model_.bos_id.value_or(-1), model_.eos_id.value_or(-1)), fingerprint_);
}

BpeTokenizer::~BpeTokenizer() = default;

std::unique_ptr<BpeTokenizer> BpeTokenizer::load(const std::string& path) {
  const MappedFile file(path);
  const std::string beside = (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
  std::error_code error;
  if (!std::filesystem::exists(beside, error)) return parse(file.text(), path);
  const MappedFile config(beside);
  TUTTI_CHECK(config.nbytes() > 0, "{}:1:1: byte 1: not JSON: the file is empty", beside);
  return std::make_unique<BpeTokenizer>(io::parse_tokenizer_json(file.text(), config.text(), path));
}

std::unique_ptr<BpeTokenizer> BpeTokenizer::parse(std::string_view json, std::string_view name) {
  return std::make_unique<BpeTokenizer>(io::parse_tokenizer_json(json, "", name));
}

void BpeTokenizer::save(const std::string& path) const { write_file_atomically(path, to_json()); }

void BpeTokenizer::save_with_markers(const std::string& folder) const {
  const std::filesystem::path place(folder);
  write_file_atomically((place / "tokenizer_config.json").string(), io::tokenizer_config_json_of(model_));
  save((place / "tokenizer.json").string());
}

void BpeTokenizer::encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const {
  const std::lock_guard lock(engine_->mutex);
  const auto append = [&](const std::vector<int32_t>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
  if (options.add_special_tokens) append(model_.frame.before);
  engine_->added_tokens.split(
      text, options.parse_special, [&](std::string_view stretch) { engine_->encode_stretch(stretch, ids); },
      [&](int32_t id) { ids.push_back(id); });
  if (options.add_special_tokens) append(model_.frame.after);
}

std::string_view BpeTokenizer::token_bytes(int32_t id) const {
  TUTTI_CHECK(id >= 0 && id < static_cast<int32_t>(tokens_.size()) && tokens_[static_cast<size_t>(id)].exists,
              "tokenizer {} has no token {}; ids are 0 to {}", name(), id, vocab_size() - 1);
  return tokens_[static_cast<size_t>(id)].bytes;
}

bool BpeTokenizer::has_token(int32_t id) const {
  return id >= 0 && id < std::ssize(tokens_) && tokens_[static_cast<size_t>(id)].exists;
}

bool BpeTokenizer::is_special(int32_t id) const {
  return id >= 0 && id < static_cast<int32_t>(tokens_.size()) && tokens_[static_cast<size_t>(id)].special;
}

std::string BpeTokenizer::name() const { return fmt::format("bpe-{}", vocab_size()); }

}  // namespace tutti
