// WordPiece as in BERT: each word is put together, greedily, from the longest tokens that fit.
// Source: Wu et al., "Google's neural machine translation system" (2016), section 4.1; Devlin et al., BERT (2019).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/tokenizer.h"
#include "tutti/io/word_piece_model.h"

namespace tutti {

// Case, accents, white space and words outside the vocabulary are lost, so decode(encode(x)) is not x; it is what
// HuggingFace tokenizers return. May be called by any thread. Calls of encode_into() are serialized, because they share
// a cache of encoded words.
class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(WordPieceModel model);
  ~WordPieceTokenizer() override;

  const WordPieceModel& model() const { return model_; }
  std::string to_json() const { return io::tokenizer_json_of(model_); }
  // Writes tokenizer.json and a tokenizer_config.json that names BOS and EOS.
  void save_with_markers(const std::string& folder) const;

  void encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const override;
  // The tokens with a space between words.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const override;
  // The characters of the token, without the prefix of those that continue a word.
  std::string_view token_bytes(int32_t id) const override;
  bool has_token(int32_t id) const override;
  bool is_special(int32_t id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> bos_id() const override { return model_.bos_id; }
  std::optional<int32_t> eos_id() const override { return model_.eos_id; }
  std::string name() const override;
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  struct Engine;
  struct Token {
    std::string text;
    bool exists = false;
    bool special = false;
    bool continues = false;
  };
  const Token& token(int32_t id) const;

  WordPieceModel model_;
  std::vector<Token> tokens_;  // by id
  std::unique_ptr<Engine> engine_;
  uint64_t fingerprint_ = 0;
};

}  // namespace tutti
