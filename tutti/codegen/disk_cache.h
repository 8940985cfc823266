// Machine code on disk, shared by the processes of one user.
//
// One file per kernel: header, key, code, checksum; written under another name and renamed, so that a reader sees a
// whole file or none. What is read is checked before use; a damaged file is the same as none and is written anew. A
// cache that cannot be used (no home, read-only, full disk, writable by others) costs speed only: one warning, then
// kernels live in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/codegen/cache_key.h"
#include "tutti/codegen/object_loader.h"

namespace tutti::codegen {

struct DiskCacheOptions {
  std::filesystem::path directory;               // empty: no disk cache
  int64_t limit_nbytes = int64_t{256} << 20;     // all entries together; the longest unused are deleted beyond it
};

// TUTTI_CACHE_DIR, else $XDG_CACHE_HOME/tutti, else ~/.cache/tutti; TUTTI_CACHE_LIMIT_MB (0: no disk cache).
DiskCacheOptions disk_cache_options_from_environment();

struct CacheEntryName {
  CacheKey key;
  std::string_view spec_key;  // compared in full with the entry's
  CpuTarget target;
  uint64_t fingerprint;       // of the code generator
};

// Exclusive across threads and processes for as long as it lives. Holds nothing when the cache is unusable.
class CacheLock {
 public:
  explicit CacheLock(int fd = -1) : fd_(fd) {}
  CacheLock(CacheLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  CacheLock& operator=(CacheLock&&) = delete;
  ~CacheLock();

 private:
  int fd_;
};

// Any thread.
class DiskCache {
 public:
  explicit DiskCache(DiskCacheOptions options);

  bool is_usable() const { return usable_.load(std::memory_order_relaxed); }
  std::optional<CodeBlob> read(const CacheEntryName& name);
  void write(const CacheEntryName& name, const CodeBlob& blob);
  // Taken around "read again, compile, write", so that one process compiles and the others read.
  CacheLock lock(const CacheKey& key);

  std::filesystem::path path_of(const CacheEntryName& name) const;

 private:
  void give_up(std::string_view why);
  void note_written(int64_t nbytes);
  int64_t evict();  // returns what is left

  const DiskCacheOptions options_;
  std::atomic<bool> usable_ = false;
  std::mutex size_mutex_;
  int64_t known_nbytes_ = -1;  // guarded; -1: not counted yet
};

}  // namespace tutti::codegen
