// A full disk that needs no mount.
#pragma once

#include <sys/resource.h>

namespace tutti::testing {

// While it lives, no file of this process may grow beyond `nbytes`: a write that goes further fails with EFBIG, and its
// thread is sent a SIGXFSZ, which ends a process that does not expect it.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t nbytes) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limited{nbytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
};

}  // namespace tutti::testing
