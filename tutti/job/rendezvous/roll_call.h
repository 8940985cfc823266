// Roll call: the ranks of a job exchange their hosts and processes before they have a group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti/job/peer.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {

struct RollCall {
  std::vector<std::string> hosts;        // host of each rank; ranks with equal strings can share memory
  std::vector<pid_t> pids;               // pid of each rank on this host; 0 for ranks on other hosts
  std::vector<PeerIdentity> identities;  // process of each rank, for messages
};

// Returns when all `size` ranks have called it with this key, which is used only once. The last rank to return removes
// the keys from the store except the sizes, by which a rank that arrives later with another size is refused. `group` is
// for messages. UsageError, naming two ranks, when they give different sizes. The death of a rank of this host after
// its call is detected within a fraction of a second (PeerError, see MemberWatch); StoreTimeout names the ranks that
// have not called within `timeout`.
//
// A rank that gives up what the ranks meet for stores the reason under alarm_of(key): those that wait or call later
// throw MeetingEnded with it.
RollCall call_roll(Store& store, const std::string& key, const std::string& group, int rank, int size,
                   std::chrono::milliseconds timeout);

std::string alarm_of(const std::string& key);

}  // namespace tutti::comm
