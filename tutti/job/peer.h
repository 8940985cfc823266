// The processes of other ranks, as messages name them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tutti::comm {

// The process of a rank, for messages.
struct PeerIdentity {
  pid_t pid = 0;
  std::string host = {};
  int world_rank = -1;  // -1: not known
};
// "rank 3 (pid 4711 on host7)"; without a pid "rank 3". The rank of a group of some ranks of the world is "rank 1
// (world rank 3, pid 4711 on host7)".
std::string describe(int rank, const PeerIdentity& identity);

// A member of a group on another host, where this process cannot watch its process.
struct FarMember {
  std::string name;  // "rank 3 (pid 4711 on host7)"
  std::string host;  // its identity, as host_identity() says it there
  pid_t pid = 0;
};

// `shown_ranks`: rank numbers of the members of a group for messages; empty: their group ranks.
inline int shown_rank(const std::vector<int>& shown_ranks, int rank) {
  return shown_ranks.empty() ? rank : shown_ranks[static_cast<size_t>(rank)];
}

}  // namespace tutti::comm
