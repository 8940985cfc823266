// What a rank knows about its job. For the files of this room that make groups.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/comm/store/rendezvous.h"
#include "tutti/comm/transport.h"

namespace tutti::comm {

// A slot of the RankContext.
struct WorldState {
  static WorldState& current();

  // "rank 3 (pid 4711 on host7)": what messages call the group's rank `rank`, which is world rank `world_rank`.
  std::string describe_rank(int rank, int world_rank) const {
    const auto r = static_cast<size_t>(world_rank);
    return describe(rank, r < identities.size() ? identities[r] : PeerIdentity());
  }

  std::mutex mutex;
  std::shared_ptr<ProcessGroup> world;
  Rendezvous rendezvous;
  bool ranks_are_threads = false;
  std::vector<std::string> hosts;          // of each world rank: equal strings share memory
  std::vector<pid_t> pids;                 // of each world rank on this host, 0 elsewhere; empty where ranks are threads
  std::vector<PeerIdentity> identities;    // of each world rank, for messages
  std::mutex making;                        // a rank makes one group after the other
  std::map<std::string, int64_t> ordinals;  // how many groups were made of one list of members. Under `making`.
};

// Makes a group with the transport of `options`, or the best one for where its members run. Collective over them.
// `key` is unique among the groups of the job; `rank` is this rank's number in the group.
std::shared_ptr<ProcessGroup> make_group(WorldState& state, const std::string& key, int rank, const std::vector<int>& world_ranks,
                                         const GroupOptions& options);

}  // namespace tutti::comm
