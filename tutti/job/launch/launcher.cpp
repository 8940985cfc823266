#include "tutti/job/launch/launcher.h"

#include <string.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include "tutti/job/distributed.h"

namespace tutti::comm {

int launch_local(const LaunchOptions& options) {
  const bool one = options.ranks == 1;
  return services_for(
             fmt::format("what starts {} rank{} as {}", options.ranks, one ? "" : "s", one ? "a process" : "processes"))
      .launch(options);
}

std::string describe_exit(int rank, int pid, int wait_status, const std::string& where) {
  const std::string who = fmt::format("rank {} (pid {}){}", rank, pid, where);
  if (WIFEXITED(wait_status)) return fmt::format("{} exited with status {}", who, WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* name = sigabbrev_np(number);
  return fmt::format("{} was killed by {}", who, name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number));
}

}  // namespace tutti::comm
