// Stable 64-bit hashes of bytes: equal on every machine and in every release, so they may appear in files and file names.
// Not for security.
// Source: XXH3, 64-bit variant, xxHash 0.8 (the release that froze its output).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

// This overload has no default seed, because hash64("text", seed) would otherwise take the seed for the size of the literal.
uint64_t hash64(const void* data, size_t nbytes, uint64_t seed);
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0) { return hash64(bytes.data(), bytes.size(), seed); }

// For unordered containers of std::string that are also searched by string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return hash64(text); }
};

}  // namespace tutti
