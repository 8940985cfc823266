#include "tutti/io/byte_alphabet.h"

#include "tutti/io/utf8.h"

namespace tutti::io {
namespace {

constexpr uint32_t kFirstSubstitute = 0x100;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint8_t, 256> order{};
  std::array<uint32_t, 256> character{};  // by byte
  std::array<int16_t, 0x180> byte{};      // by character, -1 for none
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  uint32_t substitute = kFirstSubstitute;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t character = stands_for_itself(byte) ? byte : substitute++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  size_t next = 0;
  for (const int16_t byte : alphabet.byte) {
    if (byte >= 0) alphabet.order[next++] = static_cast<uint8_t>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet instance = make_alphabet();
  return instance;
}

}  // namespace

const std::array<uint8_t, 256>& byte_alphabet_order() { return alphabet().order; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes) utf8_append(alphabet().character[static_cast<unsigned char>(byte)], characters);
  return characters;
}

std::optional<std::string> from_byte_alphabet(std::string_view characters) {
  std::string bytes;
  while (!characters.empty()) {
    const size_t nbytes = utf8_sequence_nbytes(characters);
    if (nbytes == 0) return std::nullopt;
    const uint32_t character = utf8_decode(characters.substr(0, nbytes));
    if (character >= alphabet().byte.size() || alphabet().byte[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte[character]));
    characters.remove_prefix(nbytes);
  }
  return bytes;
}

}  // namespace tutti::io
