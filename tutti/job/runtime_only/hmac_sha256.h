// HMAC-SHA256 for a library that needs none beside libc. Source: FIPS 180-4 and RFC 2104.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::comm {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::string_view text);
// Takes the same time for all keys and texts of the same length.
Sha256 hmac_sha256(std::string_view key, std::string_view text);

}  // namespace tutti::comm
