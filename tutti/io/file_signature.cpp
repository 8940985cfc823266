#include "tutti/io/file_signature.h"

#include "tutti/core/error.h"
#include "tutti/io/mapped_file.h"
#include "tutti/runtime/atomic_file.h"

#ifdef TUTTI_OPENSSL
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>
#include <memory>
#endif

namespace tutti {

#ifdef TUTTI_OPENSSL
namespace {

constexpr size_t kSignatureBytes = 64;
constexpr size_t kMostKeyBytes = 1 << 16;

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Context = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;

// Nobody is asked for a passphrase.
int no_passphrase(char*, int, int, void*) { return 0; }

enum class KeyPart : uint8_t { for_signing, for_verifying };

Key read_key(const std::string& path, KeyPart part) {
  const bool signs = part == KeyPart::for_signing;
  const char* const kind = signs ? "private" : "public";
  const MappedFile file(path);
  TUTTI_CHECK(file.nbytes() >= 1 && file.nbytes() <= kMostKeyBytes,
              "{} has {} bytes; expected a {} key in PEM, which has some hundred", path, file.nbytes(), kind);
  const Bio bio(BIO_new_mem_buf(file.bytes().data(), static_cast<int>(file.nbytes())));
  TUTTI_CHECK_ENV(bio != nullptr, "{}: OpenSSL is out of memory", path);
  Key key(signs ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr)
                : PEM_read_bio_PUBKEY(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  const bool is_protected = file.text().find("ENCRYPTED") != std::string_view::npos;
  TUTTI_CHECK(key != nullptr || !is_protected,
              "{} is protected by a passphrase; write the key without one: openssl pkey -in {} -out unprotected.pem",
              path, path);
  TUTTI_CHECK(key != nullptr, "{} holds no {} key in PEM; {}", path, kind,
              signs ? "make one: openssl genpkey -algorithm ed25519 -out private.pem"
                    : "take it from the private key: openssl pkey -in private.pem -pubout -out public.pem");
  TUTTI_CHECK(EVP_PKEY_get_id(key.get()) == EVP_PKEY_ED25519,
              "{} holds a {} key of {}, and packages are signed with Ed25519; make one: openssl genpkey -algorithm "
              "ed25519 -out private.pem",
              path, kind, EVP_PKEY_get0_type_name(key.get()) ? EVP_PKEY_get0_type_name(key.get()) : "another kind");
  return key;
}

const unsigned char* data_of(const MappedFile& file) {
  return reinterpret_cast<const unsigned char*>(file.bytes().data());
}

Context new_context() {
  Context context(EVP_MD_CTX_new());
  TUTTI_CHECK_ENV(context != nullptr, "OpenSSL is out of memory");
  return context;
}

}  // namespace

void check_signing_key(const std::string& private_key) { read_key(private_key, KeyPart::for_signing); }

void sign_file(const std::string& path, const std::string& private_key, const std::string& signature) {
  const Key key = read_key(private_key, KeyPart::for_signing);
  const MappedFile file(path);
  const Context context = new_context();
  std::array<unsigned char, kSignatureBytes> made{};
  size_t nbytes = made.size();
  const bool is_signed = EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
                         EVP_DigestSign(context.get(), made.data(), &nbytes, data_of(file), file.nbytes()) == 1 &&
                         nbytes == made.size();
  ERR_clear_error();
  TUTTI_CHECK_ENV(is_signed, "{}: OpenSSL could not sign it with {}", path, private_key);
  write_file_atomically(signature, {reinterpret_cast<const char*>(made.data()), made.size()});
}

void verify_signature(const std::string& path, const std::string& public_key, const std::string& signature) {
  const Key key = read_key(public_key, KeyPart::for_verifying);
  const MappedFile file(path), own(signature);
  TUTTI_CHECK_ENV(own.nbytes() == kSignatureBytes,
                  "{} has {} bytes, and a signature with Ed25519 {}; copy it again, or sign the package: tutti package "
                  "sign {} --key private.pem",
                  signature, own.nbytes(), kSignatureBytes, path);
  const Context context = new_context();
  const bool is_its = EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
                      EVP_DigestVerify(context.get(), data_of(own), own.nbytes(), data_of(file), file.nbytes()) == 1;
  ERR_clear_error();
  TUTTI_CHECK_ENV(is_its,
                  "{}: {} is not the signature of these bytes by the key {}: the file or its signature was changed, or "
                  "somebody else signed it; do not run it, and get both again from who made them",
                  path, signature, public_key);
}
#else
namespace {

[[noreturn]] void refuse() {
  throw EnvironmentError(
      "this Tutti was built without OpenSSL's libcrypto, which makes and checks signatures; install libssl-dev and "
      "build it again, or use `openssl pkeyutl -sign -rawin` and `openssl pkeyutl -verify -rawin`");
}

}  // namespace

void check_signing_key(const std::string&) { refuse(); }
void sign_file(const std::string&, const std::string&, const std::string&) { refuse(); }
void verify_signature(const std::string&, const std::string&, const std::string&) { refuse(); }
#endif

}  // namespace tutti
