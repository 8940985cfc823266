// Unicode normal form C.
#pragma once

#include <string>
#include <string_view>

namespace tutti::io {

// `text` in normal form C (Unicode Standard Annex 15; the version of the character data stands in nfc_data.cpp). Bytes
// that are not UTF-8 stay and separate what is around them. Returns `text` itself when nothing changes, else a view of
// `storage`.
std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace tutti::io
