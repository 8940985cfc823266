// Failures of an attempt to run all ranks, and the choice of the one that is the likely cause.
#pragma once

#include <string>
#include <vector>

namespace tutti::comm {

struct LaunchFailure {
  // A rank may end because another one did, so the later kinds are nearer to the cause.
  enum class Kind {
    ended,   // it ended by itself: an exit status, or SIGABRT, which is how an error that nobody catches ends a program
    killed,  // by a signal that is not the launcher's
    lost,    // a whole node no longer answers
  };
  Kind kind = Kind::ended;
  int status = 1;                       // what the launcher exits with
  std::string text;                     // "rank 1 (pid 4711) was killed by SIGKILL"
  std::vector<std::string> last_lines;  // that the rank wrote to stderr
  bool is_printed = false;
};

// The first failure of the kind that is nearest to the cause; nullptr when there are none.
LaunchFailure* cause_of(std::vector<LaunchFailure>& failures);

// On stderr, once: the text, and the last lines beneath it.
void print_failure(LaunchFailure& failure);
// On stderr: what the user is to know, while the ranks go on.
void print_notice(const std::string& text);

}  // namespace tutti::comm
