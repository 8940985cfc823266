#include "tutti/codegen/cache_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/core/error.h"

namespace tutti::codegen {

std::string objection_to_cache_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    std::filesystem::create_directories(folder.parent_path(), error);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return fmt::format("cannot create {}: {}", folder.string(), detail::errno_text(errno));
  }
  struct stat info;
  if (::stat(folder.c_str(), &info) != 0)
    return fmt::format("cannot read {}: {}", folder.string(), detail::errno_text(errno));
  if (!S_ISDIR(info.st_mode)) return fmt::format("{} is not a directory", folder.string());
  if (info.st_uid != ::geteuid()) return fmt::format("{} belongs to another user", folder.string());
  if (info.st_mode & S_IWOTH) return fmt::format("{} is writable by everybody (chmod o-w)", folder.string());
  return "";
}

}  // namespace tutti::codegen
