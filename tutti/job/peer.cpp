#include "tutti/job/peer.h"

#include <fmt/format.h>

namespace tutti::comm {

std::string describe(int rank, const PeerIdentity& identity) {
  if (identity.pid == 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (pid {} on {})", rank, identity.pid, identity.host);
}

}  // namespace tutti::comm
