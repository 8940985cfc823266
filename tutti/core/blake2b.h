// BLAKE2b: a cryptographic hash, and with a key a message authentication code.
//
// It protects data against forgery, where hash64 (hash.h) only detects accidental changes. Tutti has its own
// implementation because libcrypto is not part of every build (TUTTI_DISTRIBUTED=OFF). Source: RFC 7693, "The BLAKE2
// Cryptographic Hash and Message Authentication Code".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// Used by one thread at a time. Bytes may be added in any number of parts.
class Blake2b {
 public:
  static constexpr size_t kMaxNbytes = 64;

  // The digest has `nbytes` bytes, 1 to 64; `key` has at most 64 bytes and may be empty.
  explicit Blake2b(size_t nbytes, std::string_view key = {});
  void add(std::string_view bytes);
  // The digest; nothing may be added afterwards.
  std::string finish();

 private:
  static constexpr size_t kBlock = 128;
  void compress(bool is_last);

  size_t nbytes_;
  std::array<uint64_t, 8> state_;
  std::array<unsigned char, kBlock> block_{};
  size_t filled_ = 0;   // bytes in block_, which is compressed only when more bytes follow
  uint64_t count_ = 0;  // bytes compressed so far
};

}  // namespace tutti
