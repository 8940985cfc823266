// The one door to what the processes of a user keep on disk for each other: kernels, measured choices, tokens, tokenizers.
//
// Whoever can write into the folder could run code in our processes or make them read what is not there. So the folder
// is opened once and everything in it is reached through that descriptor. It is made for this user alone (0700); one that
// belongs to somebody else, or that others may write to, is not used. A file in it is used when it is a regular file of
// this user that nobody else may write to: symbolic links are not followed, and a pipe does not make us wait. What a
// file holds is for each cache to check; sealed_cache.h does so for all but the largest.
//
// Files appear by rename, so that a reader sees a whole file or none. A folder that fails (no home, read-only, full disk,
// a file in its place) costs time and one warning per process, never the run.
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

// TUTTI_CACHE_DIR, else $XDG_CACHE_HOME/tutti, else ~/.cache/tutti. Without any of them "", and one warning.
std::filesystem::path default_cache_folder();

// An open file that belongs to this object.
class CacheFile {
 public:
  CacheFile() = default;
  explicit CacheFile(int descriptor) : descriptor_(descriptor) {}
  CacheFile(CacheFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  CacheFile& operator=(CacheFile&& other) noexcept;
  ~CacheFile();

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // All of it; nothing when it is longer than `most`, or grows or shrinks meanwhile.
  std::optional<std::string> read(uint64_t most) const;
  // Makes it the newest of its kind: evict() takes the oldest.
  void touch() const;

 private:
  int descriptor_ = -1;
};

// Held by one thread of all processes for as long as it lives. Holds nothing where a lock cannot be had.
using CacheLock = CacheFile;

// Any thread, any number of processes.
class CacheFolder {
 public:
  // Makes the folder when it is not there. An empty path keeps nothing and says nothing.
  explicit CacheFolder(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  bool is_usable() const { return static_cast<bool>(folder_); }

  // The file of that name when it may be used. `forbidden` are the bits of the mode that it must not have.
  CacheFile open(std::string_view name, mode_t forbidden = S_IWGRP | S_IWOTH) const;
  // Puts a file of these parts in place of the one of that name. False when nothing can be kept, which is said once.
  bool replace(std::string_view name, std::span<const std::string_view> parts) const;
  // Taken around "look again, make, replace", so that one process makes and the others read. Waits for as long as
  // another has it, at most `patience`; then goes on without: work is done twice, and the result is the same.
  // A wait that may take minutes is told on stderr after a second.
  CacheLock lock(std::string_view name, std::chrono::seconds patience) const;

  struct Limit {
    int64_t files = std::numeric_limits<int64_t>::max();
    int64_t nbytes = std::numeric_limits<int64_t>::max();
  };
  // Deletes the oldest of the files whose names contain `mark` until the others are within the limit, and what killed
  // processes left. Returns the bytes of those that stay.
  int64_t evict(std::string_view mark, const Limit& limit) const;

 private:
  CacheFile open_checked(std::string_view name, int flags, mode_t forbidden) const;
  void warn_of_write(std::string_view name, int error) const;

  std::filesystem::path path_;
  CacheFile folder_;
  mutable std::atomic<bool> can_write_ = true;
};

}  // namespace tutti
