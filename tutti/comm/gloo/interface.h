// The address of this host to which peers connect: numeric, "10.0.0.7".
#pragma once

#include <string>

namespace tutti::comm {

// `wanted`: the value of GLOO_SOCKET_IFNAME, or "". UsageError lists the interfaces there are when it is none of them.
// Peers that are all on this host need no more than the loopback interface, which no other host can reach.
std::string choose_address(const std::string& wanted, bool all_are_here = false);

}  // namespace tutti::comm
