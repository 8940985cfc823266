// The mesh of a group's gloo connections: one TCP connection per pair of ranks.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Collective over the seat's members, which find each other's addresses in the store and return when all are connected to
// all; nothing of it stays in the store. The network interface is that of GLOO_SOCKET_IFNAME, else that of this host's
// name, else the first one that is up and not the loopback.
//
// UsageError without a store or with an unknown interface. TimeoutError at the deadline names the ranks that are late.
// PeerError names a rank that died, noticed by any member, or could not connect, within a fraction of a second.
std::unique_ptr<Transport> make_gloo_transport(const GroupSeat& seat);

}  // namespace tutti::comm
