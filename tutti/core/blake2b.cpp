#include "tutti/core/blake2b.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tutti/core/error.h"

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie");

// RFC 7693, 2.6: the fractional parts of the square roots of the first eight primes.
constexpr std::array<uint64_t, 8> kStart = {0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B,
                                            0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F,
                                            0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};
constexpr int kRounds = 12;
// RFC 7693, 2.7: which words of the message a round mixes in; rounds 10 and 11 repeat 0 and 1.
constexpr uint8_t kOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

// RFC 7693, 3.1.
void mix(uint64_t& a, uint64_t& b, uint64_t& c, uint64_t& d, uint64_t x, uint64_t y) {
  a += b + x;
  d = std::rotr(d ^ a, 32);
  c += d;
  b = std::rotr(b ^ c, 24);
  a += b + y;
  d = std::rotr(d ^ a, 16);
  c += d;
  b = std::rotr(b ^ c, 63);
}

}  // namespace

Blake2b::Blake2b(size_t nbytes, std::string_view key) : nbytes_(nbytes), state_(kStart) {
  TUTTI_CHECK(nbytes >= 1 && nbytes <= kMaxNbytes && key.size() <= kMaxNbytes,
              "BLAKE2b: a digest of {} bytes and a key of {}; expected 1 to {} and at most {}", nbytes, key.size(),
              kMaxNbytes, kMaxNbytes);
  state_[0] ^= 0x01010000 ^ (key.size() << 8) ^ nbytes;
  if (key.empty()) return;
  std::copy(key.begin(), key.end(), block_.begin());
  filled_ = kBlock;  // a key takes a block of its own
}

// RFC 7693, 3.2.
void Blake2b::compress(bool is_last) {
  count_ += filled_;
  std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), 0);
  uint64_t m[16], v[16];
  std::memcpy(m, block_.data(), kBlock);
  std::copy(state_.begin(), state_.end(), v);
  std::copy(kStart.begin(), kStart.end(), v + 8);
  v[12] ^= count_;
  if (is_last) v[14] = ~v[14];
#pragma GCC unroll 12  // The order of words becomes part of the code: twice as fast.
  for (int round = 0; round < kRounds; ++round) {
    const uint8_t* s = kOrder[round % 10];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) mix(v[i], v[4 + i], v[8 + i], v[12 + i], m[s[2 * i]], m[s[2 * i + 1]]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      mix(v[i], v[4 + (i + 1) % 4], v[8 + (i + 2) % 4], v[12 + (i + 3) % 4], m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
  }
  for (size_t i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
  filled_ = 0;
}

void Blake2b::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (filled_ == kBlock) compress(false);  // the last block must stay for finish()
    const size_t part = std::min(bytes.size(), kBlock - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), part);
    filled_ += part;
    bytes.remove_prefix(part);
  }
}

std::string Blake2b::finish() {
  compress(true);
  return std::string(reinterpret_cast<const char*>(state_.data()), nbytes_);
}

}  // namespace tutti
