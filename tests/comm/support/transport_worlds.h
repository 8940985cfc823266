// Ranks with a world over any transport that this program can start ranks of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// "threads", "shm", "gloo", "hier", as far as they are part of this build.
std::vector<std::string> world_transports();
// Runs fn on ranks with a world over `transport`: threads, else processes; for hier each half of them is a host. Every
// rank must succeed.
void run_over(const std::string& transport, int ranks, const std::function<void(ProcessGroup&)>& fn);

}  // namespace tutti::comm
