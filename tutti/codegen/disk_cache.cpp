#include "tutti/codegen/disk_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

constexpr int kVersion = 3;  // of label and contents
constexpr uint64_t kLargestEntry = uint64_t{1} << 30;
constexpr const char* kSuffix = ".kernel";
constexpr int kLockFiles = 64;
constexpr std::chrono::seconds kPatience{60};  // with another process that compiles one kernel

std::string name_of_file(const CacheEntryName& name) {
  return fmt::format("{}-{:016x}{}", name.key.hex(), name.fingerprint, kSuffix);
}

std::string label_of(const CacheEntryName& name) {
  return fmt::format("kernel {} {} {:016x} {}", kVersion, name_of(name.target), name.fingerprint, name.spec_key);
}

// The contents of an entry: the offset of the entry point, then code.
std::optional<CodeBlob> blob_of(std::string contents) {
  CodeBlob blob;
  if (contents.size() <= sizeof(blob.entry)) return std::nullopt;
  std::memcpy(&blob.entry, contents.data(), sizeof(blob.entry));
  blob.bytes = contents.substr(sizeof(blob.entry));
  if (blob.entry >= blob.bytes.size()) return std::nullopt;
  return blob;
}

}  // namespace

DiskCacheOptions disk_cache_options_from_environment() {
  DiskCacheOptions options;
  if (const char* limit = std::getenv("TUTTI_CACHE_LIMIT_MB"); limit && *limit) {
    char* end = nullptr;
    const long long mebibytes = std::strtoll(limit, &end, 10);
    TUTTI_CHECK(*end == '\0' && mebibytes >= 0 && mebibytes <= (1LL << 40),
                "TUTTI_CACHE_LIMIT_MB={}: expected a number of MiB, or 0 for no cache on disk", limit);
    if (mebibytes == 0) return options;
    options.limit_nbytes = mebibytes << 20;
  }
  options.directory = default_cache_folder();
  return options;
}

std::filesystem::path DiskCache::path_of(const CacheEntryName& name) const {
  return sealed_.folder().path() / name_of_file(name);
}

std::optional<CodeBlob> DiskCache::read(const CacheEntryName& name) const {
  std::optional<std::string> contents = sealed_.read(name_of_file(name), label_of(name), kLargestEntry);
  return contents ? blob_of(std::move(*contents)) : std::nullopt;
}

void DiskCache::write(const CacheEntryName& name, const CodeBlob& blob) {
  std::string contents(reinterpret_cast<const char*>(&blob.entry), sizeof(blob.entry));
  contents += blob.bytes;
  if (const auto nbytes = sealed_.write(name_of_file(name), label_of(name), contents)) note_written(*nbytes);
}

CacheLock DiskCache::lock(const CacheKey& key) const {
  return sealed_.folder().lock(fmt::format("lock.{:02}", key.high % kLockFiles), kPatience);
}

void DiskCache::note_written(int64_t nbytes) {
  const std::lock_guard guard(size_mutex_);
  if (known_nbytes_ >= 0) known_nbytes_ += nbytes;
  if (known_nbytes_ < 0 || known_nbytes_ > limit_nbytes_)
    known_nbytes_ = sealed_.folder().evict(kSuffix, {.nbytes = limit_nbytes_});
}

}  // namespace tutti::codegen
