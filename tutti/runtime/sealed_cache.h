// SealedCache: cache files protected by a keyed hash, so that only contents written by a process of this user are read
// back.
//
// The cached kernels are machine code, and a folder with the right permissions today may have been open to others
// before, or may come from an archive. Each file therefore carries the keyed BLAKE2b of its label and contents under a
// random key of this user, which is stored in the file "key" (mode 0600) of the folder. A file that is damaged,
// truncated or forged, or has another key or label, is treated as missing.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/runtime/cache_folder.h"

namespace tutti {

// May be used by any thread of any number of processes.
class SealedCache {
 public:
  explicit SealedCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const CacheFolder& folder() const { return folder_; }
  bool is_usable() const { return folder_.is_usable(); }

  // The contents that write() stored under this name and label, at most `most` bytes, or nullopt; marks the file as
  // just used. `label` describes everything that the contents depend on and is compared in full; it begins with the
  // kind of the cache and the version of its contents.
  std::optional<std::string> read(std::string_view name, std::string_view label, uint64_t most) const;
  // Returns the size of the file in bytes, or nullopt when it could not be written.
  std::optional<int64_t> write(std::string_view name, std::string_view label, std::string_view contents) const;

 private:
  std::string key_on_disk() const;
  std::string key(bool make) const;  // "" when there is none

  CacheFolder folder_;
  mutable std::mutex mutex_;
  mutable std::string key_;  // guarded
};

}  // namespace tutti
