// A rank's state of its job, for the files in tutti/comm that create groups.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/comm/transport.h"
#include "tutti/comm/transports.h"
#include "tutti/job/rendezvous/rendezvous.h"

namespace tutti::comm {

// A slot of the RankContext.
struct WorldState {
  static WorldState& current();

  // "rank 3 (pid 4711 on host7)": the name in messages of the group's rank `rank`, which is world rank `world_rank`.
  std::string describe_rank(int rank, int world_rank) const {
    const auto r = static_cast<size_t>(world_rank);
    return describe(rank, r < identities.size() ? identities[r] : PeerIdentity());
  }

  std::mutex mutex;
  std::shared_ptr<ProcessGroup> world;
  Rendezvous rendezvous;
  bool ranks_are_threads = false;
  std::vector<std::string> hosts;  // host of each world rank; ranks with equal strings can share memory
  std::vector<pid_t> pids;         // pid of each world rank on this host, 0 for others; empty if ranks are threads
  std::vector<PeerIdentity> identities;     // process of each world rank, for messages
  std::mutex making;                        // a rank creates one group at a time
  std::map<std::string, int64_t> ordinals;  // how many groups were created per list of members; protected by `making`
};

// Returns the members on other hosts; none where nothing is known of them. Messages call them `ranks`; they are the
// world's `world_ranks`.
std::vector<FarMember> far_members(const WorldState& state, const std::vector<int>& ranks,
                                   const std::vector<int>& world_ranks);

// Creates a group with the transport of `options`, or the best one for the hosts of its members. Collective over the
// members. `key` is unique among the groups of the job; `rank` is this rank's number in the group.
std::shared_ptr<ProcessGroup> make_group(WorldState& state, const std::string& key, int rank,
                                         const std::vector<int>& world_ranks, const GroupOptions& options);

}  // namespace tutti::comm
