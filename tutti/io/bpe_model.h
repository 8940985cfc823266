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

namespace tutti {

struct BpeModel {
  // The bytes of each token of model.vocab, indexed by id; nullopt where no token has the id.
  std::vector<std::optional<std::string>> vocab;
  std::array<int32_t, 256> byte_ids{};
  std::vector<io::BpeMerge> merges;  // in rank order
  std::vector<AddedToken> added_tokens;
  // Applied in order, each to the pieces that the previous one produced.
  std::vector<std::string> split_patterns;
  // Whether the text is first converted to Unicode normal form C.
  bool normalizes_nfc = false;
  // Whether a piece that is a token as a whole becomes that token without merging.
  bool ignores_merges = false;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

namespace io {

// Parses tokenizer.json. Supported: model BPE without dropout, unknown token, affixes or byte fallback, over all 256
// bytes; normalizer none or NFC; pre_tokenizer ByteLevel without prefix space, or a Sequence of Split (Isolated, Regex
// or String) and ByteLevel; decoder ByteLevel; added tokens without stripping or word boundaries. Post-processors are
// not applied, because BOS and EOS are added when documents are packed into rows. `config` is the text of
// tokenizer_config.json, or empty; it names bos_token and eos_token. Without it, EOS is the first of <|endoftext|>,
// <|end_of_text|>, <|eos|>, </s> and BOS the first of <|begin_of_text|>, <|bos|>, <s> that is an added token.
// UsageError, naming `name` and the offending part, for everything that is not supported.
BpeModel parse_tokenizer_json(std::string_view json, std::string_view config, std::string_view name);

// The same model as tokenizer.json, readable by HuggingFace tokenizers.
std::string tokenizer_json_of(const BpeModel& model);

// A tokenizer_config.json that names the BOS and EOS tokens, which tokenizer.json cannot express.
std::string tokenizer_config_json_of(const BpeModel& model);

// The split patterns of published models.
extern const char* const kGpt2SplitPattern;
extern const char* const kQwenSplitPattern;

}  // namespace io
}  // namespace tutti
