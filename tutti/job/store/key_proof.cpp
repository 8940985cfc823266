#include "tutti/job/store/key_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

void fill_random(char* bytes, size_t count) {
  TUTTI_CHECK_ENV(RAND_bytes(reinterpret_cast<unsigned char*>(bytes), static_cast<int>(count)) == 1,
                  "the system gives no random numbers for a job key");
}

}  // namespace

std::string make_job_key() {
  Nonce random = make_nonce();
  std::string key;
  for (const char c : random) key += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return key;
}

Nonce make_nonce() {
  Nonce nonce;
  fill_random(nonce.data(), nonce.size());
  return nonce;
}

Proof make_proof(std::string_view key, Side side, const Nonce& client, const Nonce& server) {
  std::string text = side == Side::kClient ? "tutti store 1 client" : "tutti store 1 server";
  text.append(client.data(), client.size());
  text.append(server.data(), server.size());
  Proof proof;
  unsigned int size = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(proof.data()), &size);
  TUTTI_CHECK_ENV(made != nullptr && size == proof.size(), "libcrypto cannot compute HMAC-SHA256");
  return proof;
}

bool is_same_proof(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace tutti::comm
