// Shared by the caches of prepared data: labels derived from the data files, and how long one process waits for
// another.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/io/text_source.h"

namespace tutti::io {

// A text that changes when the path, size, modification time or inode change time of a file of the list changes, or
// when the files are divided into documents differently. Cache files hold it and are used where all of it is equal.
std::string data_label(std::span<const std::string> files, const TextSourceOptions& options);
// The name of the cache file that holds `label`: the files of several labels may have one name, and then replace each
// other.
std::string data_file_name(std::string_view prefix, std::string_view label, std::string_view suffix = "");

// Tokens and tokenizers are prepared under one lock of the cache folder, because the ranks of a run start together and
// need the same files.
inline constexpr const char* kDataLock = "data.lock";
inline constexpr std::chrono::seconds kDataPatience = std::chrono::minutes(30);
inline constexpr int64_t kKeptFiles = 8;  // how many files of each kind are kept, the newest ones

}  // namespace tutti::io
