#include "tutti/runtime/sealed_cache.h"

#include <sys/random.h>

#include <array>
#include <cstring>

#include "tutti/core/blake2b.h"

namespace tutti {
namespace {

constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', 'S', 'L', '1'};
constexpr const char* kKeyFile = "key";
constexpr size_t kKeyNbytes = 32;
constexpr size_t kSealNbytes = 32;
constexpr std::chrono::seconds kPatience{10};  // a key is made in no time

// In front of label and contents.
struct Header {
  char magic[8];
  uint64_t label_nbytes;
  uint64_t contents_nbytes;
  char seal[kSealNbytes];  // of what stands before it, and of label and contents
};
static_assert(sizeof(Header) == 24 + kSealNbytes);

std::string_view bytes_of(const Header& header) { return {reinterpret_cast<const char*>(&header), sizeof(header)}; }

std::string seal_of(const std::string& key, const Header& header, std::string_view label, std::string_view contents) {
  Blake2b hash(kSealNbytes, key);
  hash.add(bytes_of(header).substr(0, sizeof(header) - kSealNbytes));
  hash.add(label);
  hash.add(contents);
  return hash.finish();
}

}  // namespace

// One that others can read is no secret, and is made anew.
std::string SealedCache::key_on_disk() const {
  const CacheFile file = folder_.open(kKeyFile, S_IRWXG | S_IRWXO);
  const std::optional<std::string> bytes = file ? file.read(kKeyNbytes) : std::nullopt;
  return bytes && bytes->size() == kKeyNbytes ? *bytes : "";
}

std::string SealedCache::key(bool make) const {
  const std::lock_guard guard(mutex_);
  if (!key_.empty()) return key_;
  key_ = key_on_disk();
  if (!key_.empty() || !make) return key_;
  const CacheLock lock = folder_.lock("lock.key", kPatience);
  key_ = key_on_disk();
  std::array<char, kKeyNbytes> fresh;
  if (!key_.empty() || ::getrandom(fresh.data(), fresh.size(), 0) != static_cast<ssize_t>(fresh.size())) return key_;
  const std::string_view part(fresh.data(), fresh.size());
  if (folder_.replace(kKeyFile, {&part, 1})) key_ = part;
  return key_;
}

std::optional<std::string> SealedCache::read(std::string_view name, std::string_view label, uint64_t most) const {
  const CacheFile file = folder_.open(name);
  if (!file) return std::nullopt;
  const std::string secret = key(false);
  std::optional<std::string> bytes = secret.empty() ? std::nullopt : file.read(sizeof(Header) + label.size() + most);
  Header header;
  if (!bytes || bytes->size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes->data(), sizeof(header));
  const std::string_view body = std::string_view(*bytes).substr(sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.label_nbytes != label.size() ||
      !body.starts_with(label) || header.contents_nbytes != body.size() - label.size())
    return std::nullopt;
  const std::string_view contents = body.substr(label.size());
  if (seal_of(secret, header, label, contents) != std::string_view(header.seal, kSealNbytes)) return std::nullopt;
  file.touch();
  return std::string(contents);
}

std::optional<int64_t> SealedCache::write(std::string_view name, std::string_view label,
                                          std::string_view contents) const {
  if (!is_usable()) return std::nullopt;
  const std::string secret = key(true);
  if (secret.empty()) return std::nullopt;
  Header header{.magic = {}, .label_nbytes = label.size(), .contents_nbytes = contents.size(), .seal = {}};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::memcpy(header.seal, seal_of(secret, header, label, contents).data(), kSealNbytes);
  const std::string_view parts[] = {bytes_of(header), label, contents};
  if (!folder_.replace(name, parts)) return std::nullopt;
  return static_cast<int64_t>(sizeof(header) + label.size() + contents.size());
}

}  // namespace tutti
