#include "tutti/job/store/file_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tutti/core/hash.h"
#include "tutti/job/store/wire.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

constexpr size_t kHashBytes = 8;

}  // namespace

FileLog::FileLog(std::string path) : path_(std::move(path)) {
  fd_ = UniqueFd(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  TUTTI_CHECK_ENV(fd_, "file store: cannot open '{}': {}", path_, detail::errno_text(errno));
  struct stat status{};
  TUTTI_CHECK_ENV(fstat(fd_.get(), &status) == 0 && S_ISREG(status.st_mode), "file store: '{}' is not a regular file",
                  path_);
}

FileLog::Lock::Lock(const FileLog& log, const StoreDeadline& deadline) : fd_(log.fd_.get()) {
  for (auto pause = std::chrono::microseconds(50); flock(fd_, LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    TUTTI_CHECK_ENV(errno == EWOULDBLOCK, "file store: cannot lock '{}': {}", log.path_, detail::errno_text(errno));
    if (deadline.has_passed()) {
      throw StoreTimeout(
          fmt::format("store at file://{}: another process held its lock until the deadline", log.path_));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(5000));
  }
}

FileLog::Lock::~Lock() { flock(fd_, LOCK_UN); }

bool FileLog::is_current() const {
  struct stat mine{}, there{};
  return fstat(fd_.get(), &mine) == 0 && stat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

int64_t FileLog::size() const {
  struct stat status{};
  TUTTI_CHECK_ENV(fstat(fd_.get(), &status) == 0, "file store: cannot read '{}': {}", path_, detail::errno_text(errno));
  TUTTI_CHECK_ENV(status.st_nlink > 0, "store at file://{}: the file was deleted while in use", path_);
  TUTTI_CHECK_ENV(status.st_size >= offset_, "store at file://{}: the file was cut from {} to {} bytes while in use",
                  path_, offset_, status.st_size);
  return status.st_size;
}

bool FileLog::has_more() const { return size() > offset_; }

std::string FileLog::read_at(int64_t offset, size_t count) const {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = pread(fd_.get(), bytes.data() + done, count - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    TUTTI_CHECK_ENV(got > 0, "file store: cannot read '{}': {}", path_,
                    got == 0 ? "it ends too early" : detail::errno_text(errno));
    done += static_cast<size_t>(got);
  }
  return bytes;
}

void FileLog::read_new(const std::function<void(uint8_t code, std::string_view body)>& apply) {
  const int64_t end = size();
  const auto damaged = [&](std::string_view how) {
    throw EnvironmentError(
        fmt::format("store at file://{}: {} at byte {}; is it a file of a store? Delete it and start "
                    "all ranks again",
                    path_, how, offset_));
  };
  while (end - offset_ >= static_cast<int64_t>(kHashBytes + kWireHeaderBytes)) {
    const std::string head = read_at(offset_, kHashBytes + kWireHeaderBytes);
    const WireHeader header = read_wire_header(std::string_view(head).substr(kHashBytes));
    if (header.version != kWireVersion || header.reserved != 0) damaged("no record");
    if (header.body_bytes > kMaxWireBody) damaged("a record larger than any");
    const size_t frame_bytes = kWireHeaderBytes + header.body_bytes;
    // Its writer died in the middle of it.
    if (end - offset_ < static_cast<int64_t>(kHashBytes + frame_bytes)) return;
    const std::string frame = read_at(offset_ + static_cast<int64_t>(kHashBytes), frame_bytes);
    uint64_t hash = 0;
    std::memcpy(&hash, head.data(), kHashBytes);
    if (hash64(frame) != hash) damaged("a damaged record");
    apply(header.code, std::string_view(frame).substr(kWireHeaderBytes));
    offset_ += static_cast<int64_t>(kHashBytes + frame_bytes);
  }
}

void FileLog::append(std::string_view frame) {
  const uint64_t hash = hash64(frame);
  std::string record(reinterpret_cast<const char*>(&hash), kHashBytes);
  record += frame;
  const HeldSignal held(SIGXFSZ);
  const auto cut = [&] { return ftruncate(fd_.get(), offset_) == 0; };
  TUTTI_CHECK_ENV(size() == offset_ || cut(), "file store: cannot repair '{}': {}", path_, detail::errno_text(errno));
  for (size_t done = 0; done < record.size();) {
    const ssize_t count =
        pwrite(fd_.get(), record.data() + done, record.size() - done, offset_ + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = errno;
      const bool is_repaired = cut();
      throw EnvironmentError(fmt::format("file store: cannot write '{}': {}{}", path_, detail::errno_text(error),
                                         is_repaired ? "" : "; the next writer repairs it"));
    }
    done += static_cast<size_t>(count);
  }
  offset_ += static_cast<int64_t>(record.size());
}

void FileLog::remove() { unlink(path_.c_str()); }

}  // namespace tutti::comm
