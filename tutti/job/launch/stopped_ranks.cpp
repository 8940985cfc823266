#include "tutti/job/launch/stopped_ranks.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace tutti::comm {
namespace {

constexpr std::chrono::milliseconds kLook{1000}, kTellAfter{2000};

// 'T' for a process that is stopped, 't' for one that a debugger holds, 0 when it is gone.
char state_of(pid_t pid) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text, '\0');
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

bool is_stopped(char state) { return state == 'T' || state == 't'; }

// The first process that is stopped of this one and those it has started, such as the program behind a shell; 0: none.
pid_t find_stopped(pid_t pid) {
  if (is_stopped(state_of(pid))) return pid;
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", pid, pid));
  for (pid_t child = 0; children >> child;) {
    if (const pid_t found = find_stopped(child); found != 0) return found;
  }
  return 0;
}

}  // namespace

std::vector<std::string> StoppedRanks::look(const std::vector<Rank>& running) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return {};
  next_ = now + kLook;
  std::vector<std::string> notices;
  std::map<int, Stopped> still;
  for (const auto& [rank, pid] : running) {
    const auto before = stopped_.find(rank);
    const pid_t which = find_stopped(pid);
    const std::string name = fmt::format("rank {} (pid {}){}", rank, pid, where_);
    if (which == 0) {
      if (before != stopped_.end() && before->second.is_told) notices.push_back(name + " goes on");
      continue;
    }
    Stopped& stopped = still[rank] = before != stopped_.end() ? before->second : Stopped{.since = now};
    if (stopped.is_told || now - stopped.since < kTellAfter) continue;
    stopped.is_told = true;
    const char* how = state_of(which) == 't' ? "held by a debugger" : "stopped";
    notices.push_back(
        fmt::format("{} has been {} for {} s, and the other ranks wait for it; 'kill -CONT {}' there lets it go on",
                    name, how, std::chrono::duration_cast<std::chrono::seconds>(now - stopped.since).count(), which));
  }
  stopped_ = std::move(still);
  return notices;
}

}  // namespace tutti::comm
