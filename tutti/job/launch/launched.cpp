#include "tutti/job/launch/launched.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "tutti/core/error.h"
#include "tutti/job/host/liveness.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

std::vector<std::string> rank_variables(const LaunchedRank& place) {
  std::vector<std::string> variables;
  const auto tell = [&](const char* name, const auto& value) {
    variables.push_back(fmt::format("{}={}", name, value));
  };
  for (const char* prefix : {"TUTTI_", ""}) {
    tell(fmt::format("{}RANK", prefix).c_str(), place.rank);
    tell(fmt::format("{}WORLD_SIZE", prefix).c_str(), place.world_size);
    tell(fmt::format("{}LOCAL_RANK", prefix).c_str(), place.local_rank);
    tell(fmt::format("{}LOCAL_WORLD_SIZE", prefix).c_str(), place.local_world_size);
  }
  tell("GROUP_RANK", place.node);
  tell("GROUP_WORLD_SIZE", place.nodes);
  tell("ROLE_NAME", "default");
  tell("ROLE_RANK", place.rank);
  tell("ROLE_WORLD_SIZE", place.world_size);
  tell("MASTER_ADDR", place.store_host);
  tell("MASTER_PORT", place.master_port);
  tell("TORCHELASTIC_USE_AGENT_STORE",
       "False");  // PyTorch's rank 0 serves a store itself: the launcher's does not speak its protocol
  tell("TORCHELASTIC_RESTART_COUNT", place.restart);
  tell("TORCHELASTIC_MAX_RESTARTS", place.max_restarts);
  tell("TORCHELASTIC_RUN_ID", place.run_id);
  tell("TUTTI_STORE_PORT", place.store_port);
  tell("TUTTI_STORE_HOSTED", 1);
  if (!place.job_key.empty()) tell("TUTTI_JOB_KEY", place.job_key);
  tell("TUTTI_LAUNCHER_PID", getpid());
  return variables;
}

int find_free_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool found = fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  TUTTI_CHECK_ENV(found, "launch: this host has no free port for MASTER_PORT: {}", detail::errno_text(errno));
  return ntohs(address.sin_port);
}

std::vector<std::string> rank_defaults(int local_ranks, int cores, bool (*is_set)(const char* name)) {
  std::vector<std::string> variables;
  if (!is_set("TUTTI_THREADS")) variables.push_back(fmt::format("TUTTI_THREADS={}", std::max(1, cores / local_ranks)));
  if (!is_set("OMP_NUM_THREADS") && local_ranks > 1) variables.push_back("OMP_NUM_THREADS=1");
  if (!is_set("TORCH_NCCL_ASYNC_ERROR_HANDLING")) variables.push_back("TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
  return variables;
}

void tie_to_launcher(int number) {
  const char* text = std::getenv("TUTTI_LAUNCHER_PID");
  if (text == nullptr) return;
  const pid_t launcher = std::atoi(text);
  TUTTI_CHECK_ENV(prctl(PR_SET_PDEATHSIG, number) == 0, "cannot tie this rank to its launcher: {}",
                  detail::errno_text(errno));
  // The launcher may have gone before the line above took effect.
  TUTTI_CHECK_ENV(
      launcher > 0 && (getppid() == launcher || kill(launcher, 0) == 0 || errno == EPERM),
      "the launcher of this rank (pid {}) is gone; unset TUTTI_LAUNCHER_PID when this process has another set of "
      "process numbers than its launcher, as in a container",
      text);
}

bool launcher_has_ended() {
  const char* text = std::getenv("TUTTI_LAUNCHER_PID");
  if (text == nullptr) return false;
  static Liveness launcher({std::atoi(text)});
  return launcher.is_dead(0);
}

// When a process began is field 22 of its stat, counted behind the name, which may hold anything.
std::string launcher_identity() {
  const char* text = std::getenv("TUTTI_LAUNCHER_PID");
  if (text == nullptr) {  // another launcher: the parent may be a shell of its own at each start
    const char* run = std::getenv("TORCHELASTIC_RUN_ID");
    return run == nullptr || std::string_view(run) == "none" ? "" : run;
  }
  const pid_t pid = std::atoi(text);
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string began;
  for (int field = 3; field <= 22 && fields >> began; ++field) {
  }
  return fields ? fmt::format("{} {} {}", host_name(), pid, began) : "";
}

}  // namespace tutti::comm
