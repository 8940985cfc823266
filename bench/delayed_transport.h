// A transport with the delays of a network: each round ends a latency and the time of its bytes after it has begun,
// which costs no processor time. Lanes of a group wait for their latencies at the same time and share what a rank
// receives per second.
#pragma once

#include <chrono>
#include <memory>

#include "tutti/comm/process_group.h"

namespace tutti::bench {

struct Link {
  std::chrono::microseconds latency{0};
  double gbps = 0;  // 10^9 bytes per second that a rank receives; 0: no limit
  bool delays() const { return latency.count() > 0 || gbps > 0; }
};

// A group of the ranks of `group`, over another transport of the same name whose rounds are delayed. Messages are not.
// Every rank calls it.
std::shared_ptr<comm::ProcessGroup> delayed_group(const comm::ProcessGroup& group, const Link& link);

}  // namespace tutti::bench
