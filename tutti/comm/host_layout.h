// How the ranks of a group lie on hosts.
#pragma once

#include <optional>
#include <span>

namespace tutti::comm {

// Several hosts with equally many ranks each, more than one, which are consecutive: rank = host * per_host + place.
struct HostLayout {
  int hosts = 0;
  int per_host = 0;

  int host_of(int rank) const { return rank / per_host; }
  int place_of(int rank) const { return rank % per_host; }
  int rank_at(int host, int place) const { return host * per_host + place; }
  // Whether the ranks of each host are a node of the halving tree over all ranks, so that they may be reduced by
  // themselves.
  bool are_nodes() const { return (hosts & (hosts - 1)) == 0; }
};

// The layout when rank r is on the host numbered host_of_rank[r]; nothing when ranks lie otherwise.
std::optional<HostLayout> even_hosts(std::span<const int> host_of_rank);

}  // namespace tutti::comm
