// Decompression of gzip (RFC 1952), including dictzip, which is gzip with an index for random access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The largest size that one compressed file may expand to; it protects against small files that expand to enormous ones.
inline constexpr int64_t kGunzipLimitNbytes = int64_t{1} << 34;

// Whether `bytes` begin with the gzip magic number.
bool is_gzip(std::span<const std::byte> bytes);

// The uncompressed contents of all members, with verified checksums. `name` is the file name for messages.
// EnvironmentError when the data is not gzip, is damaged or truncated, is followed by other data, or expands beyond the limit.
std::string gunzip(std::span<const std::byte> compressed, std::string_view name,
                   int64_t limit_nbytes = kGunzipLimitNbytes);

}  // namespace tutti
