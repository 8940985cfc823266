#include "tutti/train/run_folder.h"
#include "tutti/runtime/held_signal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::train {
namespace {

constexpr const char* kLockName = ".lock";

// Nobody but the holder of the lock writes in the folder itself.
void remove_temporaries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> leftovers;
  std::error_code none;  // one that stays harms nobody
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') && name.find(".tmp-") != std::string::npos && entry.is_regular_file(none))
      leftovers.push_back(entry.path());
  }
  for (const std::filesystem::path& path : leftovers) std::filesystem::remove(path, none);
}

bool holds_a_run(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() != kLockName) return true;
  }
  return false;
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& dir, const std::string& name, Options options) : path_(dir / name) {
  TUTTI_CHECK(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos,
              "run.name is '{}'; expected the name of one folder", name);
  make_and_lock();
  try {
    remove_temporaries(path_);
    if (options.fresh && holds_a_run(path_)) move_aside();
  } catch (...) {
    unlock();
    throw;
  }
}

RunFolder::~RunFolder() { unlock(); }

void RunFolder::make_and_lock() {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  TUTTI_CHECK_ENV(!error, "cannot make the run folder {}: {}", path_.string(), error.message());
  const std::filesystem::path lock = path_ / kLockName;
  lock_fd_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  TUTTI_CHECK_ENV(lock_fd_ >= 0, "cannot write in the run folder {}: {}", path_.string(), detail::errno_text(errno));
  char holder[32] = {};
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    const bool known = pread(lock_fd_, holder, sizeof holder - 1, 0) > 0;
    unlock();
    throw EnvironmentError(fmt::format("another run{} is using {}; wait for it, or choose another run.name",
                                       known ? fmt::format(" (pid {})", holder) : "", path_.string()));
  }
  // Only for the message above: the kernel keeps the lock, so a stale pid does no harm.
  const HeldSignal held(SIGXFSZ);
  const std::string pid = fmt::format("{}", getpid());
  const bool written =
      ftruncate(lock_fd_, 0) == 0 && pwrite(lock_fd_, pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
  if (!written) {
    const int cause = errno;
    unlock();
    throw EnvironmentError(
        fmt::format("cannot write in the run folder {}: {}", path_.string(), detail::errno_text(cause)));
  }
}

void RunFolder::move_aside() {
  std::filesystem::path aside;
  for (int n = 1; aside.empty() || std::filesystem::exists(aside); ++n) {
    aside = path_.parent_path() / fmt::format("{}.old-{}", path_.filename().string(), n);
  }
  std::error_code error;
  std::filesystem::rename(path_, aside, error);
  TUTTI_CHECK_ENV(!error, "cannot move {} to {}: {}", path_.string(), aside.string(), error.message());
  moved_to_ = aside;
  // The lock went with the old folder.
  unlock();
  make_and_lock();
}

void RunFolder::unlock() {
  if (lock_fd_ >= 0) close(std::exchange(lock_fd_, -1));
}

}  // namespace tutti::train
