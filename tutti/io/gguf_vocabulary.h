// Tokenizers from the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/tokenizer.h"

namespace tutti {

class ModelMetadata;

// The values of the keys tokenizer.ggml.*, as they stand in the file.
struct GgufVocabulary {
  std::string model;                  // model: "gpt2", "llama", "gemma4" or "bert"
  std::optional<std::string> pre;     // pre: the name of the patterns that split the text
  std::vector<std::string> tokens;    // tokens
  std::vector<int32_t> token_types;   // token_type, or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused
  std::vector<std::string> merges;    // merges
  std::vector<float> scores;          // scores
  std::optional<int64_t> bos_id;      // bos_token_id
  std::optional<int64_t> eos_id;      // eos_token_id
  std::optional<int64_t> unknown_id;  // unknown_token_id
  std::optional<int64_t> separator_id;  // seperator_token_id, spelled so
  std::optional<int64_t> cls_id;        // cls_token_id
  std::optional<bool> adds_bos;         // add_bos_token
  std::optional<bool> adds_eos;         // add_eos_token
  std::optional<bool> adds_space;       // add_space_prefix
};

// The keys tokenizer.ggml.* of a file. UsageError, naming file and key, for missing ones and for other types.
GgufVocabulary read_gguf_vocabulary(const ModelMetadata& metadata);

// How the text of a family is normalized and split, which a file only names, and whether its texts begin with BOS where
// the file does not say so.
struct GgufSplitting {
  std::string_view pre;
  std::vector<std::string> split_patterns;
  bool normalizes_nfc = false;
  bool ignores_merges = false;
  bool adds_bos = false;
};
// These are the splittings of byte-level BPE that are known here. Names of one splitting stand after each other, the
// usual one first.
std::span<const GgufSplitting> gguf_splittings();

// The tokenizer that gives the ids which the published tokenizer.json of the same model gives.
//   gpt2  byte-level BPE; `pre` is one of gpt-2, smollm, qwen2, deepseek-r1-qwen, llama3, llama-v3 and llama-bpe.
//         qwen2 normalizes to form C, which the file does not say. BOS is added as adds_bos says, and by default with
//         the names of Llama 3.
//   llama byte pair encoding of characters by the scores of tokens, with byte fallback; a space is put before the text
//         and BOS is added, unless adds_space and adds_bos say otherwise.
//   gemma4 the same by the ranks of merges, without a space before the text unless adds_space says so.
//   bert  WordPiece of an uncased model, whose ids are framed by [CLS] and [SEP].
// Control tokens are special and user-defined ones are added tokens that are not. Messages use `name` as the place.
// UsageError for another model, a `pre` that is absent or another, and values that contradict each other.
std::unique_ptr<Tokenizer> tokenizer_of_gguf(const GgufVocabulary& vocabulary, std::string_view name);

}  // namespace tutti
