// The ranks of a layout: threads of this process, or processes that share memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tutti::comm {
class ProcessGroup;
}  // namespace tutti::comm

namespace tutti::layouts {

// "threads", and "shm" where it is part of the build.
std::vector<std::string> transports();

// Runs fn on the ranks of a world over `transport`. Processes begin with a copy of everything that this one has
// computed, and what they compute is lost with them. Returns what a failed rank has thrown, that of the lowest rank
// first; "" when all have succeeded.
std::string failures_of_ranks(const std::string& transport, int ranks,
                              const std::function<void(comm::ProcessGroup&)>& fn);

}  // namespace tutti::layouts
