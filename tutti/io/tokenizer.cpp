#include "tutti/io/tokenizer.h"

namespace tutti {

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  encode_into(text, ids, options);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    if (skip_special && is_special(id)) continue;
    text += token_bytes(id);
  }
  return text;
}

int64_t Tokenizer::text_nbytes(int32_t id) const {
  return is_special(id) ? 0 : static_cast<int64_t>(token_bytes(id).size());
}

int64_t Tokenizer::text_nbytes(std::span<const int32_t> ids) const {
  int64_t nbytes = 0;
  for (const int32_t id : ids) nbytes += text_nbytes(id);
  return nbytes;
}

}  // namespace tutti
