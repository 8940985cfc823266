// The definition of a WordPiece tokenizer, as BERT has, and its conversion from and to a HuggingFace tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/added_tokens.h"
#include "tutti/io/bert_normalizer.h"
#include "tutti/io/sequence_frame.h"

namespace tutti {

struct WordPieceModel {
  // The tokens of model.vocab, indexed by id; nullopt where no token has the id.
  std::vector<std::optional<std::string>> vocab;
  // What tokens that continue a word begin with.
  std::string continuation_prefix = "##";
  // Words with more characters become `unknown_id` as a whole.
  int64_t max_characters_per_word = 100;
  // Stands for words that cannot be put together from tokens.
  int32_t unknown_id = 0;
  io::BertNormalization normalization;
  // Whether decoding removes the spaces before punctuation and English contractions.
  bool cleans_up = true;
  std::vector<AddedToken> added_tokens;
  // What EncodeOptions::add_special_tokens puts around a text: [CLS] and [SEP].
  SequenceFrame frame;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

namespace io {

// Parses tokenizer.json. Supported: model WordPiece, normalizer BertNormalizer, pre_tokenizer BertPreTokenizer, decoder
// WordPiece, the post-processors of tokenizer_json.h. Truncation and padding are not applied. `config` is the text of
// tokenizer_config.json, or empty. UsageError, naming `name` and the offending part, for everything that is not
// supported.
WordPieceModel parse_word_piece_json(std::string_view json, std::string_view config, std::string_view name);

// The same model as tokenizer.json, readable by HuggingFace tokenizers.
std::string tokenizer_json_of(const WordPieceModel& model);

}  // namespace io
}  // namespace tutti
