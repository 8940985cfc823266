// The proofs of the runtime of packages, compared with published values and with those that libcrypto makes.
#include "tutti/job/runtime_only/hmac_sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tutti/job/store/key_proof.h"

namespace tutti::comm {
namespace {

std::string hex(const Sha256& hash) {
  std::string text;
  for (const uint8_t byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(HmacSha256, HasTheHashesOfFips180) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HmacSha256, HasTheCodesOfRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256, MakesTheProofsOfTheFullLibrary) {
  for (const size_t length : {16u, 63u, 64u, 65u, 500u}) {
    const Nonce client = make_nonce(), server = make_nonce();
    const std::string key(length, 'k');
    std::string text = "tutti store 1 client";
    text.append(client.data(), client.size()).append(server.data(), server.size());
    const Sha256 own = hmac_sha256(key, text);
    const Proof proof = make_proof(key, Side::kClient, client, server);
    EXPECT_EQ(std::memcmp(own.data(), proof.data(), proof.size()), 0) << length;
  }
}

}  // namespace
}  // namespace tutti::comm
