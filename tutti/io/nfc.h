// Unicode normal form C.
#pragma once

#include <string>
#include <string_view>

namespace tutti::io {

// `text` in normal form C (Unicode Standard Annex 15; kNfcUnicodeVersion is the version of the character data). Bytes
// that are not UTF-8 are kept, and the text before and after them is normalized separately. Returns `text` itself when
// nothing changes, else a view of `storage`.
std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace tutti::io
