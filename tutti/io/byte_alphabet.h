// The printable alphabet in which byte-level vocabularies are written to JSON: each of the 256 bytes is one character.
// Source: Radford et al., "Language models are unsupervised multitask learners" (GPT-2), the byte-to-character map of
// its published vocabulary: 188 printable Latin-1 bytes stand for themselves, the other 68 are U+0100, U+0101, … in
// order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::io {

// The bytes in the order of their characters; the first 256 ids of a vocabulary trained here.
const std::array<uint8_t, 256>& byte_alphabet_order();

// Bytes -> characters (UTF-8).
std::string to_byte_alphabet(std::string_view bytes);

// Characters -> bytes; nullopt when a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view characters);

}  // namespace tutti::io
