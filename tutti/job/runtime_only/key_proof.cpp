// Proofs of the job key without libcrypto: those of store/key_proof.cpp, so that both libraries can meet in one store.
#include "tutti/job/store/key_proof.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/job/runtime_only/hmac_sha256.h"

namespace tutti::comm {

std::string make_job_key() {
  std::string key;
  for (const char c : make_nonce()) key += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return key;
}

Nonce make_nonce() {
  Nonce nonce;
  ssize_t got = -1;  // up to 256 bytes come at once
  do got = getrandom(nonce.data(), nonce.size(), 0);
  while (got < 0 && errno == EINTR);
  TUTTI_CHECK_ENV(got == static_cast<ssize_t>(nonce.size()), "the system gives no random numbers for a job key: {}",
                  detail::errno_text(errno));
  return nonce;
}

Proof make_proof(std::string_view key, Side side, const Nonce& client, const Nonce& server) {
  std::string text = side == Side::kClient ? "tutti store 1 client" : "tutti store 1 server";
  text.append(client.data(), client.size());
  text.append(server.data(), server.size());
  const Sha256 hash = hmac_sha256(key, text);
  Proof proof;
  std::memcpy(proof.data(), hash.data(), proof.size());
  return proof;
}

bool is_same_proof(const Proof& a, const Proof& b) {
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace tutti::comm
