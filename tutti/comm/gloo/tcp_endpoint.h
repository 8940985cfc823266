// Sockets at numeric addresses, none of which blocks.
#pragma once

#include <sys/socket.h>

#include <string>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

struct TcpEndpoint {
  sockaddr_storage address{};
  socklen_t size = 0;  // 0: none
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// `host` is a number: "10.0.0.7", "fe80::1%eth0". No endpoint when it is none.
TcpEndpoint tcp_endpoint(const std::string& host, int port);
bool is_loopback(const TcpEndpoint& endpoint);
// Listens on a free port. Invalid, with the errno set, when that fails.
UniqueFd listen_at(const TcpEndpoint& endpoint);
// Begins to connect. Invalid, with the errno set, when that fails at once.
UniqueFd begin_connecting(const TcpEndpoint& endpoint);

// "127.0.0.1:4711 127.0.0.1:29500": both ends of a connection, "" for anything else.
std::string ends_of(int fd);
// Only the near end; "" when `fd` is no socket of TCP.
std::string near_end(int fd);

}  // namespace tutti::comm
