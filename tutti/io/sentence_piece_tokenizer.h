// Byte pair encoding of characters with byte fallback, as in Llama 2, Mistral and Gemma.
// Source: Kudo and Richardson, "SentencePiece" (EMNLP 2018).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/sentence_piece_model.h"
#include "tutti/io/tokenizer.h"

namespace tutti {

// Immutable; any thread may call. decode(encode(x)) is x but for U+2581 in the text, which stands for a space, and for
// spaces at the start where the model puts one there. Tokens of bytes decode to these bytes, also where they are no
// valid UTF-8, for which HuggingFace tokenizers give U+FFFD.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(SentencePieceModel model);
  ~SentencePieceTokenizer() override;

  const SentencePieceModel& model() const { return model_; }
  std::string to_json() const { return io::tokenizer_json_of(model_); }
  // Writes tokenizer.json and a tokenizer_config.json that names BOS and EOS.
  void save_with_markers(const std::string& folder) const;

  void encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const override;
  // The text of the token with spaces in the place of U+2581, or its byte.
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
    std::string bytes;
    bool exists = false;
    bool special = false;
  };

  SentencePieceModel model_;
  std::vector<Token> tokens_;  // by id
  std::unique_ptr<Engine> engine_;
  uint64_t fingerprint_ = 0;
};

}  // namespace tutti
