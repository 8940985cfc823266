// The characters with the Unicode property White_Space, which has not changed since Unicode 6.3.
#pragma once

#include <cstdint>

namespace tutti::io {

constexpr bool is_white_space(uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace tutti::io
