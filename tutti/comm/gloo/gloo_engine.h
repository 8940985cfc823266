// A MessageEngine over connections made by gloo.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "tutti/comm/gloo/pair_socket.h"
#include "tutti/comm/message/message_engine.h"

namespace gloo::transport {
class Context;
}

namespace tutti::comm {

// `context` is connected to all ranks. pids[p] is the process of rank p on this host, 0 elsewhere; empty: unknown.
// sockets[p] is its connection.
std::unique_ptr<MessageEngine> make_gloo_engine(std::shared_ptr<gloo::transport::Context> context,
                                                std::vector<pid_t> pids, std::vector<PairSocket> sockets);

}  // namespace tutti::comm
