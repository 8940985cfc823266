// The available transports, by name.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/transport.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {

// Describes a group that is being created to one of its members. All members create it at the same time with equal
// values, except for `rank`.
struct GroupSeat {
  std::string name = "0";  // for messages
  std::string key;         // unique among all groups of the job at any time; prefixes its keys in the store
  int rank = 0;            // this rank's number in the group
  int size = 1;
  std::vector<int> world_ranks;  // world ranks of the members, in group-rank order
  std::vector<pid_t> pids = {};  // pids of the members in group-rank order, 0 for those on other hosts; empty: unknown
  std::vector<PeerIdentity> identities = {};  // processes of the members, in group-rank order; empty: unknown
  std::vector<int> shown_ranks = {};          // rank numbers of the members for messages; empty: their group ranks
  std::vector<FarMember> far = {};            // the members on other hosts; empty: unknown
  int local_ranks = 0;                        // number of ranks of the job on this host; 0: unknown
  std::shared_ptr<Store> store;               // the store of the job
  Clock::time_point deadline = Clock::now() + std::chrono::minutes(5);
};

struct TransportInfo {
  std::string name;
  bool available = true;
  std::string why_not = {};  // e.g. "Tutti was configured with TUTTI_GLOO=OFF"
  std::string use = {};      // its purpose, in a few words
};

// All transports of this version of Tutti, including those that are not part of this build.
std::vector<TransportInfo> known_transports();
// A note on how the transport of that name works on this machine, found out by trying; "" when there is nothing to
// say.
std::string note_on_transport(std::string_view name);

// One that this build has. The source that holds it has a row at the beginning of a line, in namespace tutti::comm; the
// build makes the table of the rows in the sources that it compiles, so that a transport whose library is missing is a
// row that is missing.
struct TransportEngine {
  const char* name;
  std::unique_ptr<Transport> (*make)(const GroupSeat& seat);
  std::string (*note)() = nullptr;  // what it found out about this machine
};
std::span<const TransportEngine* const> transport_engines();
#define TUTTI_TRANSPORT(name, ...)               \
  extern const TransportEngine transport_##name; \
  constinit const TransportEngine transport_##name { #name, __VA_ARGS__ }

// Creates a transport. Collective over the members of the group. UsageError when the name is unknown (the message lists
// those that this build has) or the transport is not part of this build.
std::unique_ptr<Transport> make_transport(std::string_view name, const GroupSeat& seat);

}  // namespace tutti::comm
