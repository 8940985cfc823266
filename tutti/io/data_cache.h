// What the caches of prepared data share: names made of the data files, and how long one process waits for another.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "tutti/io/text_source.h"

namespace tutti::io {

// Changes when a file of the list changes in path, size or time of writing or of its inode, or is cut into documents in
// another way.
uint64_t data_key(std::span<const std::string> files, const TextSourceOptions& options);

// Tokens and tokenizers are made under one lock of the cache folder: the ranks of a run start together and want the same.
inline constexpr const char* kDataLock = "data.lock";
inline constexpr std::chrono::seconds kDataPatience = std::chrono::minutes(30);
inline constexpr int64_t kKeptFiles = 8;  // of either kind, the newest

}  // namespace tutti::io
