// Who the ranks of a job are, before they have a group: the host of each, and the processes on this one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti/comm/store/store.h"

namespace tutti::comm {

struct RollCall {
  std::vector<std::string> hosts;  // of each rank: equal strings share memory
  std::vector<pid_t> pids;         // of each rank on this host; 0: on another one
};

// Returns when all `size` ranks have called it with this key, which is used once. `group` is for messages. Ranks of this
// host that died after they had come are noticed within a fraction of a second (PeerError, see MemberWatch); StoreTimeout
// names the ranks that have not come within `timeout`.
RollCall call_roll(Store& store, const std::string& key, const std::string& group, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace tutti::comm
