// The definition of a byte-level BPE tokenizer, and its conversion from and to a HuggingFace tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/added_tokens.h"
#include "tutti/io/bpe_merger.h"
#include "tutti/io/sequence_frame.h"

namespace tutti {

struct BpeModel {
  // The bytes of each token of model.vocab, indexed by id; nullopt where no token has the id.
  std::vector<std::optional<std::string>> vocab;
  io::ByteTokens bytes;
  std::vector<io::BpeMerge> merges;  // in rank order
  std::vector<AddedToken> added_tokens;
  // Applied in order, each to the pieces that the previous one produced.
  std::vector<std::string> split_patterns;
  // After so many of the patterns, a space is put before each piece that does not begin with one; nullopt: never. At
  // most one pattern follows, which is kGpt2SplitPattern.
  std::optional<size_t> prefix_space_after;
  // Whether the text is first converted to Unicode normal form C.
  bool normalizes_nfc = false;
  // Whether a piece that is a token as a whole becomes that token without merging.
  bool ignores_merges = false;
  // What EncodeOptions::add_special_tokens puts around a text.
  SequenceFrame frame;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

namespace io {

// Whether a vocabulary without a token for `byte` is refused, because ordinary text would lose it.
constexpr bool is_needed(unsigned char byte) { return (byte >= ' ' && byte <= '~') || byte == '\t' || byte == '\n'; }

// Parses tokenizer.json. Supported: model BPE without dropout, affixes or byte fallback, with a token for each
// byte of printable ASCII, tab and line feed (SmolLM2 has none for 21 other bytes); normalizer
// none, NFC or a Sequence of it; pre_tokenizer ByteLevel, or a Sequence of Split (Isolated, Regex or String) and Digits
// that ends with ByteLevel; decoder ByteLevel or a Sequence of only that; the post-processors of tokenizer_json.h.
// Truncation and padding are not applied. `config` is the text of tokenizer_config.json, or empty; it names bos_token
// and eos_token (read_document_markers()). UsageError, naming `name` and the offending part, for everything that is not
// supported.
BpeModel parse_tokenizer_json(std::string_view json, std::string_view config, std::string_view name);

// The same model as tokenizer.json, readable by HuggingFace tokenizers.
std::string tokenizer_json_of(const BpeModel& model);
// The same without the frame, which has no part in the ids of the text itself; a fingerprint is made of this.
std::string unframed_tokenizer_json_of(const BpeModel& model);

// A tokenizer_config.json that names the BOS and EOS tokens, which tokenizer.json cannot express.
std::string tokenizer_config_json_of(const BpeModel& model);

// The split patterns of published models. kDigitPattern is that of Digits with individual_digits, and the first of
// SmolLM2's, which is followed by GPT-2's.
extern const char* const kGpt2SplitPattern;
extern const char* const kQwenSplitPattern;
extern const char* const kLlama3SplitPattern;
extern const char* const kDigitPattern;

}  // namespace io
}  // namespace tutti
