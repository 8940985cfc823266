#include "cli/standard_output.h"

#include <cerrno>
#include <cstdio>

#include "tutti/core/error.h"

namespace tutti::cli {

int status_after_output(int status, int failed) {
  errno = 0;
  const bool is_flushed = std::fflush(stdout) == 0;
  if (is_flushed && !std::ferror(stdout)) return status;
  // The reason is unknown where an earlier write failed: stdio keeps that it did, but not why.
  const std::string reason = errno == 0 ? "an earlier write failed" : detail::errno_text(errno);
  std::fprintf(stderr,
               "tutti: error: the results are incomplete, because the standard output cannot be written: %s; direct it "
               "to a place with room\n",
               reason.c_str());
  return failed;
}

}  // namespace tutti::cli
