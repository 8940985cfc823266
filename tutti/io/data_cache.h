// Shared by the caches of prepared data: keys derived from the data files, and how long one process waits for another.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "tutti/io/text_source.h"

namespace tutti::io {

// A key that changes when the path, size, modification time or inode change time of a file of the list changes, or when the files
// are divided into documents differently.
uint64_t data_key(std::span<const std::string> files, const TextSourceOptions& options);

// Tokens and tokenizers are prepared under one lock of the cache folder, because the ranks of a run start together and need the
// same files.
inline constexpr const char* kDataLock = "data.lock";
inline constexpr std::chrono::seconds kDataPatience = std::chrono::minutes(30);
inline constexpr int64_t kKeptFiles = 8;  // how many files of each kind are kept, the newest ones

}  // namespace tutti::io
