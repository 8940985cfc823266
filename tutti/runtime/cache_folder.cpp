#include "tutti/runtime/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/runtime/held_signal.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice = "name another folder in TUTTI_CACHE_DIR";
constexpr size_t kMostPerWrite = size_t{1} << 30;
// Who may have to wait for minutes learns what for.
constexpr std::chrono::seconds kLongWait = std::chrono::minutes(1), kQuietWait{1};
constexpr time_t kAbandonedAfter = 24 * 60 * 60;  // seconds: nobody writes one file for a day

// Once per process and subject: several caches share a folder, and each would say the same.
void warn_once(const std::string& subject, const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string>& said = *new std::set<std::string>;  // outlives all threads
  const std::lock_guard lock(mutex);
  if (said.insert(subject).second) fmt::print(stderr, "tutti: {}\n", text);
}

// The folders above are for this user alone too where they are made: ~/.cache is, by the XDG specification.
void make_folder(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || fs::exists(path, ignored)) return;
  make_folder(path.parent_path());
  ::mkdir(path.c_str(), 0700);
}

// Why the folder must not be used, or "".
std::string objection_to(int folder) {
  struct stat info;
  if (::fstat(folder, &info) != 0) return detail::errno_text(errno);
  if (info.st_uid != ::geteuid())
    return fmt::format("it belongs to user {} and this process runs as user {}; {}", info.st_uid, ::geteuid(), kAdvice);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fmt::format(
        "others than its owner may write to it (mode {:04o}), and what lies in it is run; chmod go-w it, or {}",
        info.st_mode & 07777, kAdvice);
  return "";
}

std::string temporary_name(std::string_view name) {
  static std::atomic<uint64_t> next{0};
  return fmt::format(".{}.tmp-{}-{}", name, ::getpid(), next++);
}

bool write_all(int descriptor, std::string_view bytes) {
  const HeldSignal held(SIGXFSZ);
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMostPerWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

fs::path default_cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string own = variable("TUTTI_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return fs::path(xdg) / "tutti";
  if (const std::string home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "tutti";
  warn_once("no folder",
            "there is no cache: neither TUTTI_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set; every process makes its "
            "kernels and tokens anew");
  return {};
}

CacheFile& CacheFile::operator=(CacheFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

CacheFile::~CacheFile() {
  if (descriptor_ >= 0) ::close(descriptor_);  // releases a lock too
}

std::optional<std::string> CacheFile::read(uint64_t most) const {
  struct stat info;
  if (::fstat(descriptor_, &info) != 0 || static_cast<uint64_t>(info.st_size) > most) return std::nullopt;
  std::string bytes(static_cast<size_t>(info.st_size) + 1, '\0');  // one more tells whether it has grown
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  if (done + 1 != bytes.size()) return std::nullopt;
  bytes.pop_back();
  return bytes;
}

// A failure only makes the file look older.
void CacheFile::touch() const { (void)::futimens(descriptor_, nullptr); }

CacheFolder::CacheFolder(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  make_folder(path_);
  CacheFile folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string objection =
      folder ? objection_to(folder.descriptor()) : fmt::format("{}; {}", detail::errno_text(errno), kAdvice);
  if (objection.empty()) {
    folder_ = std::move(folder);
    return;
  }
  warn_once(path_.string(), fmt::format("the cache {} is not used: {}. Every process makes its kernels and tokens anew",
                                        path_.string(), objection));
}

CacheFile CacheFolder::open_checked(std::string_view name, int flags, mode_t forbidden) const {
  if (!folder_) return {};
  TUTTI_ASSERT(!name.empty() && name.find('/') == std::string_view::npos, "name '{}' in a cache", name);
  CacheFile file(::openat(folder_.descriptor(), std::string(name).c_str(),
                          flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  struct stat info;
  const bool may_be_used = file && ::fstat(file.descriptor(), &info) == 0 && S_ISREG(info.st_mode) &&
                           info.st_uid == ::geteuid() && (info.st_mode & forbidden) == 0;
  return may_be_used ? std::move(file) : CacheFile();
}

CacheFile CacheFolder::open(std::string_view name, mode_t forbidden) const {
  return open_checked(name, O_RDONLY, forbidden);
}

void CacheFolder::warn_of_write(std::string_view name, int error) const {
  can_write_ = false;
  warn_once(path_.string(), fmt::format("nothing more is kept in the cache {}: cannot write {}: {}; make room, or {}",
                                        path_.string(), name, detail::errno_text(error), kAdvice));
}

// Not synced to the disk: what a crash cuts short is noticed by whoever reads it, and made anew.
bool CacheFolder::replace(std::string_view name, std::span<const std::string_view> parts) const {
  if (!folder_ || !can_write_) return false;
  const int folder = folder_.descriptor();
  const std::string temporary = temporary_name(name), target(name);
  const CacheFile file = open_checked(temporary, O_WRONLY | O_CREAT | O_EXCL, 0);
  bool written = static_cast<bool>(file);
  for (const std::string_view part : parts) written = written && write_all(file.descriptor(), part);
  if (written && ::renameat(folder, temporary.c_str(), folder, target.c_str()) == 0) return true;
  const int error = errno;
  if (file) ::unlinkat(folder, temporary.c_str(), 0);
  warn_of_write(name, error);
  return false;
}

CacheLock CacheFolder::lock(std::string_view name, std::chrono::seconds patience) const {
  using Clock = std::chrono::steady_clock;
  CacheFile file = open_checked(name, O_RDWR | O_CREAT, 0);
  if (!file) return {};  // replace() says why
  const auto begin = Clock::now(), end = begin + patience;
  std::chrono::microseconds pause(200);
  while (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return {};  // a file system without locks
    if (Clock::now() >= end) {
      warn_once(fmt::format("{}/{}", path_.string(), name),
                fmt::format("{}/{} has been locked by another process for {} s; this one goes on without",
                            path_.string(), name, patience.count()));
      return {};
    }
    if (patience >= kLongWait && Clock::now() - begin >= kQuietWait) {
      warn_once(fmt::format("{}/{} waits", path_.string(), name),
                fmt::format("waiting for another process that has locked {}/{}, at most {} minutes", path_.string(),
                            name, patience.count() / 60));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(10'000));
  }
  return file;
}

int64_t CacheFolder::evict(std::string_view mark, const Limit& limit) const {
  if (!folder_) return 0;
  const int again = ::openat(folder_.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(again < 0 ? nullptr : ::fdopendir(again), ::closedir);
  if (!list) {
    if (again >= 0) ::close(again);
    return 0;
  }
  struct Entry {
    timespec used;
    std::string name;
    int64_t nbytes;
  };
  std::vector<Entry> entries;
  int64_t files = 0, nbytes = 0;
  const int folder = folder_.descriptor();
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string name = entry->d_name;
    struct stat info;  // another process may delete the file meanwhile
    if (name.find(mark) == std::string::npos || ::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (name.starts_with('.')) {  // being written, or left
      if (info.st_mtim.tv_sec + kAbandonedAfter < std::time(nullptr)) ::unlinkat(folder, name.c_str(), 0);
      continue;
    }
    entries.push_back({info.st_mtim, name, info.st_size});
    ++files;
    nbytes += info.st_size;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec) < std::tie(b.used.tv_sec, b.used.tv_nsec);
  });
  // Some slack, so that the next file does not bring us here again.
  const int64_t wanted = nbytes > limit.nbytes ? limit.nbytes - limit.nbytes / 8 : limit.nbytes;
  for (const Entry& entry : entries) {
    if (files <= limit.files && nbytes <= wanted) break;
    if (::unlinkat(folder, entry.name.c_str(), 0) != 0) continue;
    --files;
    nbytes -= entry.nbytes;
  }
  return nbytes;
}

}  // namespace tutti
