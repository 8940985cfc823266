// Unicode normal forms C and D.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::io {

// `text` in normal form C (Unicode Standard Annex 15; kNfcUnicodeVersion is the version of the character data). Bytes
// that are not UTF-8 are kept, and the text before and after them is normalized separately. Returns `text` itself when
// nothing changes, else a view of `storage`.
std::string_view to_nfc(std::string_view text, std::string& storage);

// Replaces code points by those of their normal form D.
void to_nfd(std::vector<uint32_t>& text);

}  // namespace tutti::io
