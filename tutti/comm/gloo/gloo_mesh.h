// A group's connections as gloo makes them: one TCP connection per pair of ranks.
#pragma once

#include <memory>

#include "tutti/comm/message/message_engine.h"
#include "tutti/comm/transports.h"

namespace tutti::comm {

// Collective over the seat's members, which find each other's addresses in the store. The network interface is that of
// GLOO_SOCKET_IFNAME, else that of this host's name, else the first one that is up and not the loopback. UsageError
// without a store or with an unknown interface; EnvironmentError names the address that does not answer by the deadline.
std::unique_ptr<MessageEngine> make_gloo_engine(const GroupSeat& seat);

std::unique_ptr<Transport> make_gloo_transport(const GroupSeat& seat);

}  // namespace tutti::comm
