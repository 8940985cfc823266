// Tokenizer: converts bytes to token ids and back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Logically immutable; may be called by any thread, though some implementations serialize the calls.
// Tokenizers here work on bytes: decode(encode(x)) == x for every x, valid UTF-8 or not (if a tokenizer.json requires
// a Unicode normal form, for every x in that form).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. BOS and EOS are not added; they frame documents (token_stream.h).
  virtual void encode_into(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // The bytes of one token; for a special token, its name. UsageError when `id` is not a token.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  // Whether `id` marks structure (document end, chat turn) and does not represent text.
  virtual bool is_special(int32_t id) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  // A readable name, such as "byte" or "bpe-2048".
  virtual std::string name() const = 0;
  // Equal fingerprints mean equal ids for every text. Used to name caches.
  virtual uint64_t fingerprint() const = 0;

  std::vector<int32_t> encode(std::string_view text) const;
  // The concatenated token_bytes() of `ids`, without special tokens when `skip_special`.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // The number of bytes of document text that a token represents, 0 for special tokens: the denominator of bits per
  // byte.
  int64_t text_nbytes(int32_t id) const;
  // The same summed over `ids`.
  int64_t text_nbytes(std::span<const int32_t> ids) const;
};

}  // namespace tutti
