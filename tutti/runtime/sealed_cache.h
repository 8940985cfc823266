// Files of a cache under a keyed hash, so that only what a process of this user has put there comes out.
//
// A folder can be right today and have been open to others yesterday, or come out of somebody's archive; kernels are
// machine code. Each file carries the keyed BLAKE2b of its label and contents under a random key of this user, which is
// the file "key" (mode 0600) of the folder. A file that is damaged, cut short, forged, of another key or of another label
// is the same as none.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/runtime/cache_folder.h"

namespace tutti {

// Any thread, any number of processes.
class SealedCache {
 public:
  explicit SealedCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const CacheFolder& folder() const { return folder_; }
  bool is_usable() const { return folder_.is_usable(); }

  // What write() was given for this name and label; the file counts as used now. `label` is all that the contents depend
  // on, compared in full, and begins with the kind of the cache and the version of its contents.
  std::optional<std::string> read(std::string_view name, std::string_view label, uint64_t most) const;
  // The bytes that the file has then, or nothing when it could not be written.
  std::optional<int64_t> write(std::string_view name, std::string_view label, std::string_view contents) const;

 private:
  std::string key_on_disk() const;
  std::string key(bool make) const;  // "": there is none

  CacheFolder folder_;
  mutable std::mutex mutex_;
  mutable std::string key_;  // guarded
};

}  // namespace tutti
