#include "tutti/io/utf8.h"

#include <cstring>

namespace tutti::io {
namespace {

uint32_t byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

bool continues(std::string_view text, size_t i) { return i < text.size() && (byte_at(text, i) & 0xC0) == 0x80; }

}  // namespace

size_t utf8_sequence_nbytes(std::string_view text) {
  if (text.empty()) return 0;
  const uint32_t lead = byte_at(text, 0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4 || !continues(text, 1)) return 0;
  if (lead < 0xE0) return 2;
  const uint32_t second = byte_at(text, 1);
  if (lead < 0xF0) {
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
    return continues(text, 2) ? 3 : 0;
  }
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
  return continues(text, 2) && continues(text, 3) ? 4 : 0;
}

size_t utf8_valid_prefix_nbytes(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    // Eight ASCII bytes at a time: most text is mostly that.
    uint64_t word = 0;
    while (position + 8 <= text.size()) {
      std::memcpy(&word, text.data() + position, 8);
      if ((word & 0x8080808080808080ull) != 0) break;
      position += 8;
    }
    if (position == text.size()) break;
    const size_t nbytes = utf8_sequence_nbytes(text.substr(position));
    if (nbytes == 0) break;
    position += nbytes;
  }
  return position;
}

std::string_view utf8_last_sequence(std::string_view text) {
  for (size_t nbytes = 1; nbytes <= 4 && nbytes <= text.size(); ++nbytes) {
    const std::string_view last = text.substr(text.size() - nbytes);
    if ((byte_at(last, 0) & 0xC0) != 0x80) return utf8_sequence_nbytes(last) == nbytes ? last : std::string_view();
  }
  return {};
}

uint32_t utf8_decode(std::string_view sequence) {
  const uint32_t lead = byte_at(sequence, 0);
  if (sequence.size() == 1) return lead;
  uint32_t code_point = lead & (0x7Fu >> sequence.size());
  for (size_t i = 1; i < sequence.size(); ++i) code_point = (code_point << 6) | (byte_at(sequence, i) & 0x3F);
  return code_point;
}

void utf8_append(uint32_t code_point, std::string& text) {
  const auto put = [&text](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace tutti::io
