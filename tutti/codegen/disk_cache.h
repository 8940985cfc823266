// Machine code on disk, shared by the processes of one user.
//
// One sealed file per kernel (runtime/sealed_cache.h): what is read has been written by a process of this user, or it
// is compiled and written anew. A cache that cannot be used costs speed only: one warning, then kernels live in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/codegen/cache_key.h"
#include "tutti/codegen/object_loader.h"
#include "tutti/codegen/target.h"
#include "tutti/runtime/sealed_cache.h"

namespace tutti::codegen {

struct DiskCacheOptions {
  std::filesystem::path directory;            // empty: no disk cache
  int64_t limit_nbytes = int64_t{256} << 20;  // all entries together; the longest unused are deleted beyond it
};

// default_cache_folder(), and TUTTI_CACHE_LIMIT_MB (0: no disk cache).
DiskCacheOptions disk_cache_options_from_environment();

struct CacheEntryName {
  CacheKey key;
  std::string_view spec_key;  // compared in full with the entry's
  Target target;
  uint64_t fingerprint;  // generator_fingerprint()
};

// Any thread.
class DiskCache {
 public:
  explicit DiskCache(const DiskCacheOptions& options)
      : sealed_(options.directory), limit_nbytes_(options.limit_nbytes) {}

  bool is_usable() const { return sealed_.is_usable(); }
  std::optional<CodeBlob> read(const CacheEntryName& name) const;
  void write(const CacheEntryName& name, const CodeBlob& blob);
  // Taken around "read again, compile, write", so that one process compiles and the others read.
  CacheLock lock(const CacheKey& key) const;

  std::filesystem::path path_of(const CacheEntryName& name) const;

 private:
  void note_written(int64_t nbytes);

  const SealedCache sealed_;
  const int64_t limit_nbytes_;
  std::mutex size_mutex_;
  int64_t known_nbytes_ = -1;  // guarded; -1: not counted yet
};

}  // namespace tutti::codegen
