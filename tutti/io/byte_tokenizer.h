// One token per byte: ids 0 to 255 are the bytes, 256 is BOS, 257 is EOS. No text has the markers in it, and encoding
// adds none.
#pragma once

#include "tutti/io/tokenizer.h"

namespace tutti {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256;
  static constexpr int32_t kEos = 257;

  void encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const override;
  std::string_view token_bytes(int32_t id) const override;
  bool is_special(int32_t id) const override { return id == kBos || id == kEos; }
  int64_t vocab_size() const override { return 258; }
  std::optional<int32_t> bos_id() const override { return kBos; }
  std::optional<int32_t> eos_id() const override { return kEos; }
  std::string name() const override { return "byte"; }
  uint64_t fingerprint() const override;
};

}  // namespace tutti
