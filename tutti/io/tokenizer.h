// Tokenizer: converts bytes to token ids and back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Which special tokens encoding makes. A text that comes from a user must not end a document or begin a turn of a chat,
// so by default there are none.
struct EncodeOptions {
  // Frames the text by the ids that the file of the tokenizer names for it, such as BOS, or [CLS] and [SEP].
  bool add_special_tokens = false;
  // Takes the names of special tokens in the text, such as <|endoftext|>, for these tokens.
  bool parse_special = false;
};

// Logically immutable; may be called by any thread, though some implementations serialize the calls.
// Tokenizers that work on bytes return decode(encode(x)) == x for every x, valid UTF-8 or not (if a tokenizer.json
// requires a Unicode normal form or a space before the text, or strips the space around markers, for every x in that
// form). WordPiece (word_piece_tokenizer.h) keeps words only.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. BOS and EOS of documents are added elsewhere (token_stream.h).
  virtual void encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const = 0;
  // The bytes of one token; for a special token, its name. UsageError when `id` is not a token.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  // Whether `id` is that of a token: vocabularies may have gaps.
  virtual bool has_token(int32_t id) const { return id >= 0 && id < vocab_size(); }
  // Whether `id` marks structure (document end, chat turn) and does not represent text.
  virtual bool is_special(int32_t id) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  // A readable name, such as "byte" or "bpe-2048".
  virtual std::string name() const = 0;
  // Equal fingerprints mean equal ids for every text, with either value of parse_special. Used to name caches.
  virtual uint64_t fingerprint() const = 0;

  // The text of `ids`, without special tokens when `skip_special`; here the concatenated token_bytes().
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The number of bytes of document text that a token represents, 0 for special tokens: the denominator of bits per
  // byte.
  int64_t text_nbytes(int32_t id) const;
  // The same summed over `ids`.
  int64_t text_nbytes(std::span<const int32_t> ids) const;
};

}  // namespace tutti
