// Gives gloo connections that were made and proven without it.
//
// gloo makes a connection itself and asks nobody who is at its other end: what it reads there may end the process. So
// each of its pairs accepts a connection of this process with itself, over the loopback interface, while the thread in
// which gloo reads is held. The descriptor is then made that of the proven connection (dup3), before that thread goes
// on. Whoever else comes in between and is accepted is closed unread. This needs a gloo whose pairs listen each for
// itself; the build checks that (cmake/TuttiGloo.cmake).
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <vector>

#include "tutti/comm/gloo/pair_socket.h"
#include "tutti/runtime/unique_fd.h"

namespace gloo::transport {
class Context;
namespace tcp {
class Device;
}
}  // namespace gloo::transport

namespace tutti::comm {

struct GlooMesh {
  std::shared_ptr<gloo::transport::tcp::Device> device;
  std::shared_ptr<gloo::transport::Context> context;
  std::vector<PairSocket> sockets;  // by rank
};

// Begins to connect this process with a pair of gloo that listens at `address`.
using ConnectToPair = std::function<UniqueFd(const sockaddr_storage& address)>;
UniqueFd connect_to_pair(const sockaddr_storage& address);

// sockets[p] is the connection with rank p; the one of `rank` is not used. EnvironmentError when gloo does not take
// them.
GlooMesh hand_over_to_gloo(int rank, std::vector<UniqueFd> sockets, const ConnectToPair& connect = connect_to_pair);

}  // namespace tutti::comm
