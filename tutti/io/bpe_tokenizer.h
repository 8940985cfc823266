// Byte-level byte pair encoding as in GPT-2, Llama 3 and Qwen, read from a HuggingFace tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "tutti/io/bpe_model.h"
#include "tutti/io/tokenizer.h"

namespace tutti {

// May be called by any thread. Calls of encode_into() are serialized, because they share a cache of encoded pieces.
class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeModel model);
  ~BpeTokenizer() override;

  // Reads tokenizer.json and, if it is in the same folder, tokenizer_config.json, which names the BOS and EOS tokens.
  // parse_tokenizer_json() lists what is supported. UsageError for a file with other contents, EnvironmentError for one
  // that cannot be read.
  static std::unique_ptr<BpeTokenizer> load(const std::string& path);
  // The same from memory; messages use `name` in place of the path.
  static std::unique_ptr<BpeTokenizer> parse(std::string_view json, std::string_view name);
  std::string to_json() const { return io::tokenizer_json_of(model_); }
  // Writes tokenizer.json atomically. That file does not contain BOS and EOS; see save_with_markers().
  void save(const std::string& path) const;
  // Writes tokenizer.json and a tokenizer_config.json that names BOS and EOS, from which load() restores this
  // tokenizer.
  void save_with_markers(const std::string& folder) const;

  const BpeModel& model() const { return model_; }

  // Added tokens are matched first; the text between them is normalized, split and merged.
  void encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const override;
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

  BpeModel model_;
  std::vector<Token> tokens_;  // by id
  std::unique_ptr<Engine> engine_;
  uint64_t fingerprint_ = 0;
};

}  // namespace tutti
