#include "tutti/job/store/job_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

std::string read_key_file(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  TUTTI_CHECK_ENV(fd >= 0, "TUTTI_JOB_KEY_FILE names '{}', which cannot be read: {}", path, detail::errno_text(errno));
  struct stat status{};
  std::string key(kMaxJobKeyBytes + 1, '\0');
  ssize_t count = -1;
  if (fstat(fd, &status) == 0) {
    do {
      count = read(fd, key.data(), key.size());
    } while (count < 0 && errno == EINTR);
  }
  const int error = errno;
  close(fd);
  TUTTI_CHECK_ENV(count >= 0, "TUTTI_JOB_KEY_FILE names '{}', which cannot be read: {}", path,
                  detail::errno_text(error));
  TUTTI_CHECK((status.st_mode & S_IROTH) == 0,
              "the job key in '{}' can be read by every user of this host; run chmod 600 on it and make a new key",
              path);
  key.resize(static_cast<size_t>(count));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' ' || key.back() == '\t')) {
    key.pop_back();
  }
  TUTTI_CHECK(!key.empty(), "TUTTI_JOB_KEY_FILE names '{}', which is empty", path);
  return key;
}

}  // namespace

std::string read_job_key() {
  const char* text = std::getenv("TUTTI_JOB_KEY");
  const char* path = std::getenv("TUTTI_JOB_KEY_FILE");
  TUTTI_CHECK(text == nullptr || path == nullptr,
              "both TUTTI_JOB_KEY and TUTTI_JOB_KEY_FILE are set; unset one of them");
  if (text == nullptr && path == nullptr) return "";
  std::string key = text != nullptr ? std::string(text) : read_key_file(path);
  TUTTI_CHECK(!key.empty(), "TUTTI_JOB_KEY is set but empty; unset it to run without a key on this host only");
  check_job_key(key);
  return key;
}

void check_job_key(std::string_view key) {
  TUTTI_CHECK(key.empty() || (key.size() >= kMinJobKeyBytes && key.size() <= kMaxJobKeyBytes),
              "the job key has {} bytes; it needs {} to {}, for example the output of 'openssl rand -hex 32'",
              key.size(), kMinJobKeyBytes, kMaxJobKeyBytes);
}

}  // namespace tutti::comm
