// Stable 64-bit hashes of bytes: equal on every machine and in every release, so they may appear in files and file
// names. Not for security. Source: XXH3, 64-bit variant, xxHash 0.8 (the release that froze its output).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

// This overload has no default seed, because hash64("text", seed) would otherwise take the seed for the size of the
// literal.
uint64_t hash64(const void* data, size_t nbytes, uint64_t seed);
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0) { return hash64(bytes.data(), bytes.size(), seed); }

// For unordered containers of std::string that are also searched by string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return hash64(text); }
};

namespace detail {
inline constinit std::atomic<bool> hashes_collide{false};
}  // namespace detail

// Where a table looks for the keys with this hash. Tables compare whole keys, so any place would do; while a
// CollidingHashesForTests lives, all keys of the process have the same one. docs/caches.md lists the tables.
inline uint64_t place_of(uint64_t hash) { return detail::hashes_collide.load(std::memory_order_relaxed) ? 0 : hash; }

// While it lives, every key collides with every other. For one thread at a time; other threads may use tables
// meanwhile.
class CollidingHashesForTests {
 public:
  CollidingHashesForTests() : before_(detail::hashes_collide.exchange(true)) {}
  ~CollidingHashesForTests() { detail::hashes_collide = before_; }
  CollidingHashesForTests(const CollidingHashesForTests&) = delete;
  CollidingHashesForTests& operator=(const CollidingHashesForTests&) = delete;

 private:
  const bool before_;
};

}  // namespace tutti
