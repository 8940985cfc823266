#include "tutti/core/blake2b.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/core/error.h"

namespace tutti {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string digest(size_t nbytes, std::string_view text, std::string_view key = {}) {
  Blake2b hash(nbytes, key);
  hash.add(text);
  return hash.finish();
}

// The sequence of RFC 7693, Appendix E.
std::string sequence(size_t length, uint32_t seed) {
  std::string bytes;
  uint32_t a = 0xDEAD4BADu * seed, b = 1;
  while (bytes.size() < length) {
    const uint32_t t = a + b;
    a = b;
    b = t;
    bytes += static_cast<char>(t >> 24);
  }
  return bytes;
}

// RFC 7693, Appendix A.
TEST(Blake2b, GivesThePublishedDigestOfAbc) {
  EXPECT_EQ(hex(digest(64, "abc")),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

// RFC 7693, Appendix E: the digest of 48 digests, with and without a key, of four lengths over six lengths of input.
TEST(Blake2b, PassesThePublishedSelfTest) {
  Blake2b all(32);
  for (const size_t nbytes : {20u, 32u, 48u, 64u}) {
    for (const uint32_t length : {0u, 3u, 128u, 129u, 255u, 1024u}) {
      const std::string input = sequence(length, length);
      all.add(digest(nbytes, input));
      all.add(digest(nbytes, input, sequence(nbytes, static_cast<uint32_t>(nbytes))));
    }
  }
  EXPECT_EQ(hex(all.finish()), "c23a7800d98123bd10f506c61e29da5603d763b8bbad2e737f5e765a7bccd475");
}

// As hashlib.blake2b(b"abc", digest_size=32, key=bytes(range(32))) of Python gives it.
TEST(Blake2b, TakesAKey) {
  std::string key;
  for (char c = 0; c < 32; ++c) key += c;
  EXPECT_EQ(hex(digest(32, "", key)), "4e51e7a913fc80137da52880fecca175bf81e117d5c68126dc2774033517ea0d");
  EXPECT_EQ(hex(digest(32, "abc", key)), "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f");
}

TEST(Blake2b, DoesNotDependOnHowBytesAreHandedOver) {
  const std::string text = sequence(600, 7);
  for (size_t first = 0; first <= text.size(); ++first) {
    Blake2b hash(32, "key");
    hash.add(std::string_view(text).substr(0, first));
    hash.add(std::string_view(text).substr(first));
    ASSERT_EQ(hash.finish(), digest(32, text, "key")) << first;
  }
}

TEST(Blake2b, RefusesSizesThatItDoesNotHave) {
  EXPECT_THROW(Blake2b(0), UsageError);
  EXPECT_THROW(Blake2b(65), UsageError);
  EXPECT_THROW(Blake2b(32, std::string(65, 'k')), UsageError);
}

}  // namespace
}  // namespace tutti
