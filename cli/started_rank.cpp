#include "cli/started_rank.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launched.h"
#include "tutti/runtime/host.h"

namespace tutti::cli {

// A launcher that binds ranks to cores has shared them out already: then there are fewer here than the launcher has
// itself.
int threads_of_rank(const comm::LaunchPlace& place) {
  if (std::getenv("TUTTI_THREADS")) return 0;
  const int cores = usable_cores();
  return cores < usable_cores(getppid()) ? cores : std::max(1, cores / place.local_world_size.value_or(1));
}

StartedRank::StartedRank(const comm::LaunchPlace& place, const std::string& transport)
    : context_(
          RankContext::Options{.rank = place.rank, .world_size = place.world_size, .threads = threads_of_rank(place)}),
      scope_(context_) {
  comm::tie_to_launcher();
  group_ = comm::init_process_group(
      {.group = {.name = "0", .description = "all ranks", .transport = transport == "auto" ? "" : transport}});
  TUTTI_CHECK(group_->size() == 1 || group_->backend(DeviceKind::cpu).name() != "fake",
              "transport fake moves no data, so that each rank would have a model of its own; unset TUTTI_TRANSPORT");
}

}  // namespace tutti::cli
