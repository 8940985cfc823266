#include "tutti/io/data_cache.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::io {

namespace fs = std::filesystem;

std::string data_label(std::span<const std::string> files, const TextSourceOptions& options) {
  std::string text = fmt::format("{} {} {} {} {}\n", options.large_file_nbytes, options.section_nbytes,
                                 options.longest_nbytes, options.reads_binary, options.text_field);
  for (const std::string& file : files) {
    struct stat status{};
    TUTTI_CHECK_ENV(stat(file.c_str(), &status) == 0, "cannot examine '{}': {}", file, detail::errno_text(errno));
    // The time of the last write can be put back, that of the last change of the inode cannot.
    text += fmt::format("{} {} {} {} {} {} {}\n", fs::absolute(file).lexically_normal().string(), status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec,
                        status.st_ino);
  }
  return text;
}

std::string data_file_name(std::string_view prefix, std::string_view label, std::string_view suffix) {
  return fmt::format("{}{:016x}{}", prefix, place_of(hash64(label)), suffix);
}

}  // namespace tutti::io
