#include "tutti/runtime/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/runtime/held_signal.h"

namespace tutti {
namespace {

// Linux transfers at most 0x7ffff000 bytes per call; a smaller step keeps an interrupted write short.
constexpr size_t kWriteStep = size_t{1} << 30;

std::string temporary_name(const std::filesystem::path& path) {
  static std::atomic<uint64_t> next{0};
  return (path.parent_path() / fmt::format(".{}.tmp-{}-{}", path.filename().string(), getpid(), next++)).string();
}

}  // namespace

AtomicFile::AtomicFile(std::string path, unsigned permissions) : path_(std::move(path)) {
  const std::filesystem::path target(path_);
  TUTTI_CHECK(target.has_filename(), "cannot write '{}': the path names no file", path_);
  folder_ = target.has_parent_path() ? target.parent_path().string() : ".";
  temporary_ = temporary_name(target);
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail("create a file beside", error);
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(std::string_view action, int error) {
  discard();
  throw EnvironmentError(fmt::format("cannot {} '{}': {} (errno {}); {}", action, path_, detail::errno_text(error),
                                     error,
                                     error == ENOSPC || error == EDQUOT || error == EFBIG
                                         ? "make room on that file system; an older file of this name is untouched"
                                         : "check that the folder exists and may be written"));
}

void AtomicFile::write(const void* data, size_t nbytes) {
  TUTTI_CHECK(descriptor_ >= 0, "write to '{}' after it was committed or failed", path_);
  const HeldSignal held(SIGXFSZ);
  const char* bytes = static_cast<const char*>(data);
  while (nbytes > 0) {
    const ssize_t written = ::write(descriptor_, bytes, std::min(nbytes, kWriteStep));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    bytes += written;
    nbytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit(Outlives what) {
  TUTTI_CHECK(descriptor_ >= 0, "commit of '{}' after it was committed or failed", path_);
  const bool syncs = what == Outlives::power_cut;
  if (syncs && fsync(descriptor_) != 0) fail("sync", errno);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  // Some file systems (NFS, quotas) report the failed write only here.
  if (close(descriptor) != 0) fail("close", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace", errno);
  temporary_.clear();
  if (!syncs) return;
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail("open the folder of", errno);
  const int synced = fsync(folder);
  const int error = errno;
  close(folder);
  // EINVAL: this file system cannot sync folders, and then has nothing to lose either.
  if (synced != 0 && error != EINVAL) fail("sync the folder of", error);
}

void write_file_atomically(const std::string& path, std::string_view contents, Outlives what, unsigned permissions) {
  AtomicFile file(path, permissions);
  file.write(contents);
  file.commit(what);
}

}  // namespace tutti
