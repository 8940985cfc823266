// Which processes can share memory.
#pragma once

#include <string>

namespace tutti::comm {

// Equal for two processes when they run under one kernel and in the same namespaces of pids and networks, which is what
// passing descriptors and watching each other need, and have the same TUTTI_HOST_ID, if any.
std::string host_identity();

}  // namespace tutti::comm
