// What a byte-level BPE tokenizer is made of, and its form as a HuggingFace tokenizer.json.
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
  // By id, the bytes of each token of model.vocab; nothing where no token has the id.
  std::vector<std::optional<std::string>> vocab;
  std::array<int32_t, 256> byte_ids{};
  std::vector<io::BpeMerge> merges;  // in rank order
  std::vector<AddedToken> added_tokens;
  // Applied one after the other, each to the pieces the one before made.
  std::vector<std::string> split_patterns;
  // The text is put into Unicode normal form C first.
  bool normalizes_nfc = false;
  // A piece that is a token as a whole is that token, whatever the merges say.
  bool ignores_merges = false;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

namespace io {

// Reads tokenizer.json. Supported: model BPE without dropout, unknown token, affixes or byte fallback, over all 256
// bytes; normalizer none or NFC; pre_tokenizer ByteLevel without prefix space, or a Sequence of Split (Isolated, Regex or
// String) and ByteLevel; decoder ByteLevel; added tokens without stripping or word borders. Post-processors are not
// applied: BOS and EOS are added per document by whoever packs documents.
// Markers: `config` (the text of tokenizer_config.json, or empty) names bos_token and eos_token; without it EOS is the
// first of <|endoftext|>, <|end_of_text|>, <|eos|>, </s> and BOS the first of <|begin_of_text|>, <|bos|>, <s> that is an
// added token. UsageError naming `name` and the offending part for everything else.
BpeModel parse_tokenizer_json(std::string_view json, std::string_view config, std::string_view name);

// The same model as tokenizer.json, readable by HuggingFace tokenizers.
std::string tokenizer_json_of(const BpeModel& model);

// What tokenizer.json cannot say: the tokens that begin and end a document, as a tokenizer_config.json names them.
std::string tokenizer_config_json_of(const BpeModel& model);

// The split patterns of published models.
extern const char* const kGpt2SplitPattern;
extern const char* const kQwenSplitPattern;

}  // namespace io
}  // namespace tutti
