// Who the ranks of a job are, before they have a group: the host of each, and its process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti/comm/store/store.h"
#include "tutti/comm/transport.h"

namespace tutti::comm {

struct RollCall {
  std::vector<std::string> hosts;  // of each rank: equal strings share memory
  std::vector<pid_t> pids;         // of each rank on this host; 0: on another one
  std::vector<PeerIdentity> identities;  // of each rank, for messages
};

// Returns when all `size` ranks have called it with this key, which is used once; the last one that returns clears the
// store of it but for the sizes, by which a rank that comes later with another one is refused. `group` is for messages.
// UsageError names two ranks that give different sizes. Ranks of this host that died after they had come are noticed
// within a fraction of a second (PeerError, see MemberWatch); StoreTimeout names the ranks that have not come within
// `timeout`.
RollCall call_roll(Store& store, const std::string& key, const std::string& group, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace tutti::comm
