// Stable 64-bit hashes of bytes: equal on every machine and in every release, so they may name files and stand in
// them. Not for security.
// Source: XXH3, 64-bit variant, xxHash 0.8 (the release that froze its output).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

// No default seed: hash64("text", seed) would otherwise take the seed of a literal for its size.
uint64_t hash64(const void* data, size_t nbytes, uint64_t seed);
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0) { return hash64(bytes.data(), bytes.size(), seed); }

}  // namespace tutti
