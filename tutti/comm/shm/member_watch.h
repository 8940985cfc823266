// While a group is being made: who of its members has died.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti/comm/shm/liveness.h"
#include "tutti/comm/store/store.h"

namespace tutti::comm {

// One rank's side; one thread at a time.
class MemberWatch {
 public:
  // pids[r] is the process of the group's rank r, 0 where this process does not know it. `store` is the job's.
  MemberWatch(Store& store, const std::string& group, std::vector<pid_t> pids);
  // Throws PeerError when a member's process is gone: "rank 2 (pid 4711 on host7) died (its process is gone) while the
  // group 'dp' was made". Of several, all ranks of the host name the one that was noticed first in any group of the job,
  // not those that ended because of it.
  // Waits up to `patience` for a death: connections of a dying process close a moment before it counts as dead.
  void look_around(std::chrono::milliseconds patience = {});

 private:
  Store& store_;
  const std::string group_;
  const std::vector<pid_t> pids_;
  Liveness liveness_;
};

}  // namespace tutti::comm
