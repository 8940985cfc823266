// One output stream of a rank: its lines are printed with a prefix, written to a file, and the last ones are kept for
// the message about the end of the rank.
#pragma once

#include <cstdio>
#include <deque>
#include <string>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

constexpr size_t kKeptLines = 20;

struct OutputPlan {
  std::string prefix;            // "[rank 1] "
  std::FILE* console = nullptr;  // where the lines appear; nullptr: nowhere
  std::string file = "";         // where the bytes go as they come; "": nowhere
};

class RankOutput {
 public:
  // `pipe`: the non-blocking read end. EnvironmentError when the file cannot be created.
  RankOutput(UniqueFd pipe, OutputPlan plan);
  RankOutput(RankOutput&& other) noexcept = default;
  RankOutput& operator=(RankOutput&&) = delete;

  int fd() const { return pipe_.get(); }  // -1 at its end
  // Reads the available output, at most 1 MiB; at the end of the pipe, also processes the unfinished line.
  void forward();
  // At most kKeptLines lines, oldest first, including the unfinished one.
  std::deque<std::string> last_lines() const;

 private:
  void write_file(const char* bytes, size_t count);
  void take_lines(bool all);
  UniqueFd pipe_, file_;
  OutputPlan plan_;
  std::string pending_;
  std::deque<std::string> last_;
};

}  // namespace tutti::comm
