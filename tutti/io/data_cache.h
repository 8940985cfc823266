// What the caches of prepared data share: names made of the data files, one builder at a time, a bounded number of files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/io/text_source.h"

namespace tutti::io {

// Changes when a file of the list changes in path, size or time, or is cut into documents in another way.
uint64_t data_key(std::span<const std::string> files, const TextSourceOptions& options);

// Creates the folder when missing and holds its lock: wait in the constructor while another process has it. The system
// releases the lock when a process dies.
class DataCacheLock {
 public:
  explicit DataCacheLock(const std::string& folder);
  ~DataCacheLock();
  DataCacheLock(const DataCacheLock&) = delete;
  DataCacheLock& operator=(const DataCacheLock&) = delete;

 private:
  int descriptor_ = -1;
};

// Keeps the newest files of the folder whose names begin with `prefix` and deletes the others.
void keep_newest(const std::string& folder, std::string_view prefix, size_t count);

}  // namespace tutti::io
