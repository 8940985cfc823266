// CacheFolder: access to the cache on disk that the processes of a user share: kernels, measured choices, tokens,
// tokenizers.
//
// Anyone who can write to the folder could run code in our processes or feed them wrong data. So the folder
// is opened once and everything in it is accessed through that descriptor. It is created for this user alone (0700); a
// folder that belongs to another user, or that others may write to, is not used. A file is used only if it is a regular
// file of this user that nobody else may write to; symbolic links are not followed, and a pipe does not block. Each
// cache must check the contents of its files; sealed_cache.h does so for all but the largest.
//
// Files are put in place by rename, so that a reader sees a complete file or none. A folder that cannot be used (no
// home, read-only, full disk, a file in its place) costs time and one warning per process but never fails the run.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

// TUTTI_CACHE_DIR, else $XDG_CACHE_HOME/tutti, else ~/.cache/tutti. If none of them is known, "", with one warning.
std::filesystem::path default_cache_folder();

// An open file, owned by this object.
class CacheFile {
 public:
  CacheFile() = default;
  explicit CacheFile(int descriptor) : descriptor_(descriptor) {}
  CacheFile(CacheFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  CacheFile& operator=(CacheFile&& other) noexcept;
  ~CacheFile();

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // The whole contents; nullopt when longer than `most` bytes, or when the size changes meanwhile.
  std::optional<std::string> read(uint64_t most) const;
  // Marks the file as just used; evict() deletes the least recently used files.
  void touch() const;

 private:
  int descriptor_ = -1;
};

// A lock held by one thread of all processes while the object lives. It is empty if the lock could not be acquired.
using CacheLock = CacheFile;

// May be used by any thread of any number of processes.
class CacheFolder {
 public:
  // Creates the folder if it does not exist. With an empty path nothing is cached, without a warning.
  explicit CacheFolder(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  bool is_usable() const { return static_cast<bool>(folder_); }

  // Opens the file with that name if it may be used. `forbidden` are mode bits that it must not have.
  CacheFile open(std::string_view name, mode_t forbidden = S_IWGRP | S_IWOTH) const;
  // Replaces the file with that name by the concatenated parts. False, with one warning, when it cannot be written.
  bool replace(std::string_view name, std::span<const std::string_view> parts) const;
  // To be held around "look again, create, replace", so that one process creates a file and the others read it. Waits
  // at most `patience` while another process holds the lock, then continues without it: the work is done twice, with
  // the same result. A wait that may take minutes is announced on stderr after a second.
  CacheLock lock(std::string_view name, std::chrono::seconds patience) const;

  struct Limit {
    int64_t files = std::numeric_limits<int64_t>::max();
    int64_t nbytes = std::numeric_limits<int64_t>::max();
  };
  // Deletes the least recently used of the files whose names contain `mark` until the rest is within the limit, and
  // temporary files left by killed processes. Returns the total bytes of the files that remain.
  int64_t evict(std::string_view mark, const Limit& limit) const;

 private:
  CacheFile open_checked(std::string_view name, int flags, mode_t forbidden) const;
  void warn_of_write(std::string_view name, int error) const;

  std::filesystem::path path_;
  CacheFile folder_;
  mutable std::atomic<bool> can_write_ = true;
};

}  // namespace tutti
