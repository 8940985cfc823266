#include "tutti/comm/host_layout.h"

#include <algorithm>
#include <set>

namespace tutti::comm {

std::optional<HostLayout> even_hosts(std::span<const int> host_of_rank) {
  if (host_of_rank.empty()) return std::nullopt;
  const auto other = std::ranges::find_if(host_of_rank, [&](int host) { return host != host_of_rank[0]; });
  const auto per_host = static_cast<size_t>(other - host_of_rank.begin());
  if (per_host < 2 || per_host == host_of_rank.size() || host_of_rank.size() % per_host != 0) return std::nullopt;
  std::set<int> hosts;
  for (size_t first = 0; first < host_of_rank.size(); first += per_host) {
    const int host = host_of_rank[first];
    const bool is_whole = std::ranges::all_of(host_of_rank.subspan(first, per_host), [&](int h) { return h == host; });
    if (!is_whole || !hosts.insert(host).second) return std::nullopt;
  }
  return HostLayout{static_cast<int>(hosts.size()), static_cast<int>(per_host)};
}

}  // namespace tutti::comm
