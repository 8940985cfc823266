// From bytes to token ids and back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Immutable to the caller; any thread may call, some implementations make threads take turns.
// Tokenizers here work on bytes: decode(encode(x)) == x for every x, valid UTF-8 or not (where a tokenizer.json asks for
// a normal form, for every x in that form).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. No BOS or EOS is added: that is a matter of documents (token_dataset.h).
  virtual void encode_into(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // The bytes of one token; for a special token the text that stands for it. UsageError when `id` is no token.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  // Whether `id` marks structure (document end, chat turn) and stands for no text of its own.
  virtual bool is_special(int32_t id) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  // What a person calls it, e.g. "byte" or "bpe-2048".
  virtual std::string name() const = 0;
  // Equal fingerprints mean equal ids for every text. Names caches.
  virtual uint64_t fingerprint() const = 0;

  std::vector<int32_t> encode(std::string_view text) const;
  // Concatenates token_bytes; special tokens are left out when `skip_special`.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // Bytes of document text that a token stands for: 0 for special tokens. The denominator of bits per byte.
  int64_t text_nbytes(int32_t id) const;
  // The same summed over `ids`.
  int64_t text_nbytes(std::span<const int32_t> ids) const;
};

}  // namespace tutti
