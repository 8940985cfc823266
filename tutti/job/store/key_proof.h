// How both ends of a connection prove that they know the job key (job_key.h); libcrypto makes the proofs.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tutti::comm {

// 64 random hexadecimal digits (256 bits).
std::string make_job_key();

using Nonce = std::array<char, 32>;
using Proof = std::array<char, 32>;
enum class Side { kClient, kServer };

Nonce make_nonce();
Proof make_proof(std::string_view key, Side side, const Nonce& client, const Nonce& server);
// Compares in constant time.
bool is_same_proof(const Proof& a, const Proof& b);

}  // namespace tutti::comm
