// The definition of a tokenizer in the manner of SentencePiece: byte pair encoding of characters, where spaces are the
// character U+2581 and unknown characters become tokens of their bytes. Llama 2, Mistral and Gemma have it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/added_tokens.h"
#include "tutti/io/bpe_merger.h"
#include "tutti/io/sequence_frame.h"

namespace tutti {

struct SentencePieceModel {
  // Where U+2581 is put before the text: never; before each stretch between added tokens, whatever it begins with (the
  // normalizer Prepend); or before stretches that do not begin with it, all of them or only one at the start of a text
  // (the pre-tokenizer Metaspace).
  enum class Prefix : uint8_t { never, every_stretch, unless_there, unless_there_at_start };

  // The characters of each token of model.vocab, indexed by id; nullopt where no token has the id.
  std::vector<std::optional<std::string>> vocab;
  io::ByteTokens bytes;  // the tokens <0x00> to <0xFF>; the unknown token is for characters when one of them is missing
  std::vector<io::BpeMerge> merges;  // in rank order
  std::vector<AddedToken> added_tokens;
  Prefix prefix = Prefix::never;
  bool splits_words = false;    // merges do not go beyond the beginning of a word, which is U+2581
  bool ignores_merges = false;  // a piece that is a token as a whole becomes that token without merging
  bool strips_space = false;    // decoding removes a space at the start of the text
  SequenceFrame frame;          // what EncodeOptions::add_special_tokens puts around a text
  std::optional<int32_t> bos_id, eos_id;
};

namespace io {

inline constexpr std::string_view kSpaceCharacter = "\u2581";

// The byte of a token "<0x0A>"; nothing for other texts.
std::optional<uint8_t> byte_of_token(std::string_view text);

// Parses tokenizer.json. Supported: model BPE with byte_fallback, without dropout and affixes; normalizer none, Replace
// of " " by U+2581, Prepend of that, or a Sequence of the two; pre_tokenizer none, Metaspace, or a Split at " ", of
// which the normalizer leaves none; decoder Metaspace or a Sequence of Replace, ByteFallback, Fuse and Strip of one
// left space; the post-processors of tokenizer_json.h. UsageError, naming `name` and the offending part, for everything
// that is not supported.
SentencePieceModel parse_sentence_piece_json(std::string_view json, std::string_view config, std::string_view name);

// The same model as tokenizer.json, readable by HuggingFace tokenizers; without a frame for a fingerprint.
std::string tokenizer_json_of(const SentencePieceModel& model, bool has_frame = true);

// The merges of a vocabulary that has scores in their place: all pairs of tokens whose union is a token, of higher
// scores first, as HuggingFace's converters order them. `merges_into` tells which tokens take part.
std::vector<BpeMerge> merges_by_score(std::span<const std::string> tokens, std::span<const float> scores,
                                      const std::vector<bool>& merges_into);

}  // namespace io
}  // namespace tutti
