#include "tutti/job/launch/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/core/error.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

// What has no end of line for so long is shown anyway.
constexpr size_t kLongestLine = 64 << 10;
constexpr size_t kLongestKeptLine = 2000;
// Read at a time, which is what a pipe holds: a rank that never stops writing does not keep the launcher from its other
// work.
constexpr int kPortions = 64;
constexpr size_t kPortionBytes = 16 << 10;

std::string shortened(const std::string& line) {
  return line.size() <= kLongestKeptLine ? line : line.substr(0, kLongestKeptLine) + " ...";
}

void keep(std::deque<std::string>& lines, const std::string& line) {
  lines.push_back(shortened(line));
  if (lines.size() > kKeptLines) lines.pop_front();
}

}  // namespace

RankOutput::RankOutput(UniqueFd pipe, OutputPlan plan) : pipe_(std::move(pipe)), plan_(std::move(plan)) {
  if (plan_.file.empty()) return;
  file_ = UniqueFd(open(plan_.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  TUTTI_CHECK_ENV(file_, "cannot write the log file {}: {}", plan_.file, detail::errno_text(errno));
}

void RankOutput::forward() {
  char buffer[kPortionBytes];
  for (int portion = 0; pipe_ && portion < kPortions; ++portion) {
    const ssize_t got = read(pipe_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got > 0) {
      write_file(buffer, static_cast<size_t>(got));
      pending_.append(buffer, static_cast<size_t>(got));
      take_lines(false);
      continue;
    }
    take_lines(true);
    const UniqueFd ended = std::move(pipe_);
  }
}

std::deque<std::string> RankOutput::last_lines() const {
  std::deque<std::string> lines = last_;
  if (!pending_.empty()) keep(lines, pending_);
  return lines;
}

// A full disk must not end the ranks: said once, then the file stays as it is.
void RankOutput::write_file(const char* bytes, size_t count) {
  while (file_ && count > 0) {
    const HeldSignal held(SIGXFSZ);
    const ssize_t put = write(file_.get(), bytes, count);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      std::fprintf(stderr, "tutti: warning: the log file %s is cut: %s\n", plan_.file.c_str(),
                   detail::errno_text(errno).c_str());
      const UniqueFd given_up = std::move(file_);
      return;
    }
    bytes += put;
    count -= static_cast<size_t>(put);
  }
}

void RankOutput::take_lines(bool all) {
  std::string text;
  const auto take = [&](const std::string& line) {
    if (plan_.console) text += plan_.prefix + line + "\n";
    keep(last_, line);
  };
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1)
    take(pending_.substr(begin, end - begin));
  pending_.erase(0, begin);
  if (!pending_.empty() && (all || pending_.size() > kLongestLine)) take(std::exchange(pending_, ""));
  if (text.empty()) return;
  // The console may be a file. Whoever looks at the stream afterwards sees that it failed (std::ferror).
  const HeldSignal held(SIGXFSZ);
  std::fwrite(text.data(), 1, text.size(), plan_.console);  // any bytes, also zeros
  std::fflush(plan_.console);
}

}  // namespace tutti::comm
