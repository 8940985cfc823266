// Detached signatures of files: who made a file, which its hashes do not say.
#pragma once

#include <string>

namespace tutti {

// Ed25519 (RFC 8032) over all bytes of a file: a signature of 64 bytes in a file of its own. Keys are PEM files as
// `openssl genpkey -algorithm ed25519` writes them. The signatures are those of `openssl pkeyutl -sign -rawin`.
//
// UsageError for a key that is none of Ed25519, is protected by a passphrase or cannot be read as a key;
// EnvironmentError, naming the file, when one cannot be read or written, when a signature has another size, and when it
// is not that of the file by the key; and for each call when Tutti was built without OpenSSL.

// Throws what sign_file() would throw because of the key.
void check_signing_key(const std::string& private_key);
// Writes the signature of `path`, replacing the file `signature` atomically.
void sign_file(const std::string& path, const std::string& private_key, const std::string& signature);
void verify_signature(const std::string& path, const std::string& public_key, const std::string& signature);

}  // namespace tutti
