// Recognizes files that hold no text, before a model is trained on their bytes.
#pragma once

#include <string>
#include <string_view>

namespace tutti::io {

// How much of a file is looked at.
inline constexpr size_t kBinaryHeadNbytes = 64 << 10;

// Describes contents that begin with `head` and are no text, and says what to do with them: "xz data; uncompress
// it first: xz -d"; "" for text. Known by the first bytes of common formats, by a zero byte, or by control characters
// that are more than 2 % of the bytes. Text need not be UTF-8.
std::string binary_kind_of(std::string_view head);

}  // namespace tutti::io
