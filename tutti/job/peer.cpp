#include "tutti/job/peer.h"

#include <fmt/format.h>

#include "tutti/job/printable.h"

namespace tutti::comm {

std::string describe(int rank, const PeerIdentity& identity) {
  std::string facts;
  if (identity.world_rank >= 0 && identity.world_rank != rank)
    facts = fmt::format("world rank {}", identity.world_rank);
  if (identity.pid != 0)
    facts += fmt::format("{}pid {} on {}", facts.empty() ? "" : ", ", identity.pid, printable(identity.host));
  return facts.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, facts);
}

}  // namespace tutti::comm
