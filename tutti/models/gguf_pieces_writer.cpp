#include "tutti/models/gguf_pieces_writer.h"

#include <algorithm>
#include <utility>

namespace tutti::models {
namespace {

enum PieceType : int32_t {
  kNormalPiece = 1,
  kUnknownPiece = 2,
  kControlPiece = 3,
  kUserPiece = 4,
  kUnusedPiece = 5,
  kBytePiece = 6
};

// Says what a file cannot, so that its reader would make other ids; "" where nothing is lost.
std::string lost_in_scores(const SentencePieceModel& model) {
  using Prefix = SentencePieceModel::Prefix;
  if (model.ignores_merges) return "whole tokens are not merged";
  if (model.splits_words) return "merges end where words begin";
  if (model.prefix != Prefix::never && model.prefix != Prefix::every_stretch)
    return "a space is put before a text only where it has none";
  for (const AddedToken& token : model.added_tokens) {
    if (token.lstrip || token.rstrip || token.single_word || token.normalized)
      return fmt::format("{} is found with a flag (lstrip, rstrip, single_word or normalized)", token.content);
  }
  const bool is_framed_by_one = model.frame.before.size() <= 1 && model.frame.after.size() <= 1;
  return is_framed_by_one ? "" : "texts are framed by several tokens";
}

struct Pieces {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;
};

// Says what llama.cpp does otherwise with a vocabulary of merges than with one of scores.
std::string lost_in_ranks(const SentencePieceModel& model) {
  if (model.prefix != SentencePieceModel::Prefix::never) return "a space is put before texts";
  const auto joins_lines = [](const std::optional<std::string>& token) {
    return token && token->find('\n') != token->npos && token->find_first_not_of('\n') != token->npos;
  };
  const bool has_such = std::any_of(model.merges.begin(), model.merges.end(), [&](const io::BpeMerge& merge) {
    return joins_lines(model.vocab[static_cast<size_t>(merge.result)]);
  });
  return has_such ? "merges join newlines with other characters" : "";
}

// A token that merges make has a better score than those of later merges.
Pieces pieces_of(const SentencePieceModel& model, int64_t vocab) {
  Pieces all;
  const auto worst = static_cast<float>(model.merges.size());
  for (int64_t id = 0; id < vocab; ++id) {
    const bool is_known = id < std::ssize(model.vocab) && model.vocab[static_cast<size_t>(id)];
    all.texts.push_back(is_known ? *model.vocab[static_cast<size_t>(id)] : fmt::format("[PAD{}]", id));
    all.types.push_back(is_known ? kNormalPiece : kUnusedPiece);
    all.scores.push_back(-worst - 1);
  }
  for (const int32_t id : model.bytes.ids) {
    if (id != io::ByteTokens::kNoToken) all.types[static_cast<size_t>(id)] = kBytePiece;
  }
  for (const AddedToken& token : model.added_tokens) {
    const auto at = static_cast<size_t>(token.id);
    all.texts[at] = token.content;
    all.types[at] = token.id == model.bytes.unknown ? kUnknownPiece : token.special ? kControlPiece : kUserPiece;
  }
  for (size_t rank = model.merges.size(); rank-- > 0;)
    all.scores[static_cast<size_t>(model.merges[rank].result)] = -static_cast<float>(rank);
  return all;
}

// Whether a reader of the scores makes the same merges: all pairs whose union is a token, those of a token together.
bool has_merges_of(const Pieces& pieces, const SentencePieceModel& model) {
  std::vector<bool> merges_into;
  for (const int32_t type : pieces.types)
    merges_into.push_back(type == kNormalPiece || type == kUserPiece || type == kUnusedPiece);
  std::vector<io::BpeMerge> read = io::merges_by_score(pieces.texts, pieces.scores, merges_into);
  std::vector<io::BpeMerge> own = model.merges;
  if (read.size() != own.size()) return false;
  const auto in_order = [&](std::vector<io::BpeMerge>& merges) {
    std::stable_sort(merges.begin(), merges.end(), [&](const io::BpeMerge& a, const io::BpeMerge& b) {
      const float x = pieces.scores[static_cast<size_t>(a.result)], y = pieces.scores[static_cast<size_t>(b.result)];
      return x != y ? x > y : std::pair(a.left, a.right) < std::pair(b.left, b.right);
    });
  };
  std::vector<int32_t> results;
  for (const io::BpeMerge& merge : own) {
    if (results.empty() || results.back() != merge.result) results.push_back(merge.result);
  }
  in_order(own), in_order(read);
  std::sort(results.begin(), results.end());
  return std::adjacent_find(results.begin(), results.end()) == results.end() &&
         std::equal(own.begin(), own.end(), read.begin(), [](const io::BpeMerge& a, const io::BpeMerge& b) {
           return a.left == b.left && a.right == b.right && a.result == b.result;
         });
}

}  // namespace

namespace {

void set_pieces(const char* kind, const SentencePieceModel& model, Pieces pieces, ModelMetadata& metadata) {
  metadata.set("tokenizer.ggml.model", kind);
  metadata.set("tokenizer.ggml.tokens", std::move(pieces.texts));
  metadata.set("tokenizer.ggml.token_type", pieces.types);
  metadata.set("tokenizer.ggml.scores", pieces.scores);
  metadata.set("tokenizer.ggml.add_space_prefix", model.prefix == SentencePieceModel::Prefix::every_stretch);
  if (model.bytes.unknown) metadata.set("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*model.bytes.unknown));
}

std::string cannot_say(const std::string& file, const std::string& lost) {
  return fmt::format("A GGUF file cannot say of {} that {}.", file, lost);
}

}  // namespace

std::optional<std::string> write_gguf_pieces(const SentencePieceModel& model, const std::string& file, int64_t vocab,
                                             ModelMetadata& metadata) {
  std::string lost = lost_in_scores(model);
  Pieces pieces = pieces_of(model, vocab);
  if (lost.empty() && !has_merges_of(pieces, model)) lost = "its merges are not those of scores";
  if (!lost.empty()) return cannot_say(file, lost);
  metadata.set("tokenizer.ggml.pre", "default");
  set_pieces("llama", model, std::move(pieces), metadata);
  return std::nullopt;
}

std::optional<std::string> write_gguf_ranked_pieces(const SentencePieceModel& model, const std::string& file,
                                                    int64_t vocab, ModelMetadata& metadata) {
  std::string lost = lost_in_scores(model);
  if (lost.empty()) lost = lost_in_ranks(model);
  if (!lost.empty()) return cannot_say(file, lost);
  Pieces pieces = pieces_of(model, vocab);
  constexpr float unused = -1000;
  pieces.scores.assign(pieces.scores.size(), unused);
  std::vector<std::string> merges;
  for (const io::BpeMerge& merge : model.merges)
    merges.push_back(fmt::format("{} {}", *model.vocab[static_cast<size_t>(merge.left)],
                                 *model.vocab[static_cast<size_t>(merge.right)]));
  metadata.set("tokenizer.ggml.merges", std::move(merges));
  set_pieces("gemma4", model, std::move(pieces), metadata);
  return std::nullopt;
}

}  // namespace tutti::models
