#include "tutti/io/byte_tokenizer.h"

#include <array>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti {
namespace {

constexpr std::array<char, 256> all_bytes() {
  std::array<char, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}
constexpr std::array<char, 256> kBytes = all_bytes();

}  // namespace

void ByteTokenizer::encode_into(std::string_view text, std::vector<int32_t>& ids,
                                const EncodeOptions& /*options*/) const {
  // resize() grows by a factor; reserving just what is needed would copy all earlier documents for each one.
  const size_t begin = ids.size();
  ids.resize(begin + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[begin + i] = static_cast<unsigned char>(text[i]);
}

std::string_view ByteTokenizer::token_bytes(int32_t id) const {
  if (id == kBos) return "<|bos|>";
  if (id == kEos) return "<|eos|>";
  TUTTI_CHECK(id >= 0 && id < 256, "the byte tokenizer has no token {}; ids are 0 to {}", id, vocab_size() - 1);
  return {&kBytes[static_cast<size_t>(id)], 1};
}

uint64_t ByteTokenizer::fingerprint() const { return hash64("byte tokenizer: 256 bytes, BOS 256, EOS 257"); }

}  // namespace tutti
