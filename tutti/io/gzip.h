// Reading gzip (RFC 1952), and with it dictzip, which is gzip whose blocks can also be found at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Largest text one compressed file may expand to. A few kilobytes can claim petabytes; this stops them.
inline constexpr int64_t kGunzipLimitNbytes = int64_t{1} << 34;

// Whether `bytes` begin as every gzip file does.
bool is_gzip(std::span<const std::byte> bytes);

// The uncompressed contents of all members, checksums verified. `name` is the file named in messages.
// EnvironmentError when the data is not gzip, damaged, cut short, followed by something else, or larger than the limit.
std::string gunzip(std::span<const std::byte> compressed, std::string_view name,
                   int64_t limit_nbytes = kGunzipLimitNbytes);

}  // namespace tutti
