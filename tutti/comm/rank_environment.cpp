#include "tutti/comm/rank_environment.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

int read_int(const char* name) {
  const char* text = std::getenv(name);
  TUTTI_CHECK(text != nullptr, "TUTTI_RANK is set but {} is not; start ranks with 'tutti train -n RANKS' or unset it",
              name);
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  TUTTI_CHECK(error == std::errc() && end == view.data() + view.size() && value >= 0,
              "environment variable {} is '{}'; expected a whole number, 0 or more", name, view);
  return value;
}

}  // namespace

std::vector<std::string> RankEnvironment::to_variables() const {
  return {fmt::format("TUTTI_RANK={}", rank),     fmt::format("TUTTI_WORLD_SIZE={}", world_size),
          fmt::format("TUTTI_SHM_FD={}", shm_fd), fmt::format("TUTTI_LAUNCHER_PID={}", launcher_pid),
          fmt::format("RANK={}", rank),           fmt::format("WORLD_SIZE={}", world_size),
          fmt::format("LOCAL_RANK={}", rank),     fmt::format("LOCAL_WORLD_SIZE={}", world_size)};
}

std::optional<RankEnvironment> read_rank_environment() {
  if (std::getenv("TUTTI_RANK") == nullptr) return std::nullopt;
  const RankEnvironment environment{.rank = read_int("TUTTI_RANK"),
                                    .world_size = read_int("TUTTI_WORLD_SIZE"),
                                    .shm_fd = read_int("TUTTI_SHM_FD"),
                                    .launcher_pid = read_int("TUTTI_LAUNCHER_PID")};
  TUTTI_CHECK(environment.rank < environment.world_size, "TUTTI_RANK is {} but TUTTI_WORLD_SIZE is {}",
              environment.rank, environment.world_size);
  return environment;
}

std::unique_ptr<ShmGroup> join_launched_group(const RankEnvironment& environment, ShmGroupOptions options) {
  TUTTI_CHECK_ENV(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0, "cannot tie rank {} to its launcher: {}", environment.rank,
                  detail::errno_text(errno));
  // The launcher may have gone before the line above took effect.
  TUTTI_CHECK_ENV(getppid() == environment.launcher_pid, "rank {}: its launcher (pid {}) is gone", environment.rank,
                  environment.launcher_pid);
  auto segment = ShmSegment::open(environment.shm_fd);
  TUTTI_CHECK(segment->world_size() == environment.world_size,
              "TUTTI_WORLD_SIZE is {} but the launcher made memory for {} ranks", environment.world_size,
              segment->world_size());
  return std::make_unique<ShmGroup>(std::move(segment), environment.rank, options);
}

}  // namespace tutti::comm
