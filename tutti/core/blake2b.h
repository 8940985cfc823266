// BLAKE2b: a cryptographic hash, and with a key a message authentication code.
//
// For what must not be forged, where hash64 (hash.h) only finds accidents. It is written here because libcrypto is not
// part of every build (TUTTI_DISTRIBUTED=OFF).
// Source: RFC 7693, "The BLAKE2 Cryptographic Hash and Message Authentication Code".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// One thread at a time. Bytes are handed over in any number of parts.
class Blake2b {
 public:
  static constexpr size_t kMaxNbytes = 64;

  // `nbytes` of digest, 1 to 64; a key of at most 64 bytes, or none.
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
  size_t filled_ = 0;   // of the block, which is compressed when more bytes follow
  uint64_t count_ = 0;  // bytes compressed; 2^64 are more than anybody adds
};

}  // namespace tutti
