// The transports there are, by name.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/store/store.h"
#include "tutti/comm/transport.h"

namespace tutti::comm {

// A member on another host, whose processes this one cannot watch.
struct FarMember {
  std::string name;  // "rank 3 (pid 4711 on host7)"
  std::string host;  // its identity, as host_identity() says it there
  pid_t pid = 0;
};

// A rank's place in a group that is being made. All members make it at the same time with equal seats but for `rank`.
struct GroupSeat {
  std::string name = "0";          // for messages
  std::string key;                 // unique among all groups of the job, also over time: prefixes what is stored
  int rank = 0;                    // in the group
  int size = 1;
  std::vector<int> world_ranks;    // of the members, in group-rank order
  std::vector<pid_t> pids = {};    // of the members on this host, in group-rank order; 0 elsewhere; empty: unknown
  std::vector<PeerIdentity> identities = {};  // of the members, in group-rank order; empty: unknown
  std::vector<int> shown_ranks = {};          // what messages call the members; empty: their ranks in the group
  std::vector<FarMember> far = {};            // the members on other hosts; empty: unknown
  int local_ranks = 0;             // of the job on this host; 0: unknown
  std::shared_ptr<Store> store;    // of the job
  Clock::time_point deadline = Clock::now() + std::chrono::minutes(5);
};

inline int shown_rank(const std::vector<int>& shown_ranks, int rank) {
  return shown_ranks.empty() ? rank : shown_ranks[static_cast<size_t>(rank)];
}

struct TransportInfo {
  std::string name;
  bool available = true;
  std::string why_not = {};  // e.g. "Tutti was configured with TUTTI_GLOO=OFF"
  std::string use = {};      // what it is for, in a few words
};

// All transports this version knows, also those that are left out of this build.
std::vector<TransportInfo> known_transports();

// UsageError when the name is unknown (it lists the legal ones) or the transport is not part of this build. Collective
// over the seat's members.
std::unique_ptr<Transport> make_transport(std::string_view name, const GroupSeat& seat);

}  // namespace tutti::comm
