// Validation and coding of UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::io {

// The length in bytes of the well-formed sequence at the start of `text`: 1 to 4, or 0 when there is none.
size_t utf8_sequence_nbytes(std::string_view text);

// The length in bytes of the longest prefix of `text` that is well-formed UTF-8.
size_t utf8_valid_prefix_nbytes(std::string_view text);

// The well-formed sequence at the end of `text`, or "" when there is none.
std::string_view utf8_last_sequence(std::string_view text);

// The code point of one well-formed sequence.
uint32_t utf8_decode(std::string_view sequence);

void utf8_append(uint32_t code_point, std::string& text);

}  // namespace tutti::io
