#include "tutti/io/data_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::io {

namespace fs = std::filesystem;

uint64_t data_key(std::span<const std::string> files, const TextSourceOptions& options) {
  std::string text = fmt::format("{} {}\n", options.large_file_nbytes, options.section_nbytes);
  for (const std::string& file : files) {
    struct stat status{};
    TUTTI_CHECK_ENV(stat(file.c_str(), &status) == 0, "cannot examine '{}': {}", file, detail::errno_text(errno));
    text += fmt::format("{} {} {} {} {}\n", fs::absolute(file).lexically_normal().string(), status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ino);
  }
  return hash64(text);
}

DataCacheLock::DataCacheLock(const std::string& folder) {
  std::error_code created;
  fs::create_directories(folder, created);
  TUTTI_CHECK_ENV(!created, "cannot create the cache folder '{}': {}; name another one in TUTTI_CACHE_DIR", folder, created.message());
  const std::string path = folder + "/data.lock";
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  TUTTI_CHECK_ENV(descriptor_ >= 0, "cannot write in the cache folder: '{}': {}; name another one in TUTTI_CACHE_DIR", path, detail::errno_text(errno));
  int status = 0;
  while ((status = flock(descriptor_, LOCK_EX)) != 0 && errno == EINTR) {
  }
  const int error = errno;
  if (status != 0) close(descriptor_);
  TUTTI_CHECK_ENV(status == 0, "cannot lock '{}': {}", path, detail::errno_text(error));
}

DataCacheLock::~DataCacheLock() { close(descriptor_); }

void keep_newest(const std::string& folder, std::string_view prefix, size_t count) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code vanished;
    const auto time = entry->last_write_time(vanished);
    if (!vanished && entry->path().filename().string().starts_with(prefix)) files.emplace_back(time, entry->path());
  }
  std::sort(files.rbegin(), files.rend());
  for (size_t i = count; i < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace tutti::io
