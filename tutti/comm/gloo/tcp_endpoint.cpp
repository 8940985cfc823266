#include "tutti/comm/gloo/tcp_endpoint.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tutti/job/store/socket.h"

namespace tutti::comm {
namespace {

UniqueFd make_socket(const TcpEndpoint& endpoint) {
  return UniqueFd(socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Invalid, with the errno as it was.
UniqueFd failed(UniqueFd fd) {
  const int error = errno;
  fd = UniqueFd();
  errno = error;
  return UniqueFd();
}

template <class Get>
std::string end_of(const Get& get, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  int protocol = 0;
  socklen_t length = sizeof protocol;
  const bool has = get(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                   (address.ss_family == AF_INET || address.ss_family == AF_INET6) &&
                   getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP;
  return has ? to_text(address) : "";
}

}  // namespace

TcpEndpoint tcp_endpoint(const std::string& host, int port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  TcpEndpoint endpoint;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return endpoint;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::memcpy(&endpoint.address, list->ai_addr, list->ai_addrlen);
  endpoint.size = list->ai_addrlen;
  return endpoint;
}

bool is_loopback(const TcpEndpoint& endpoint) {
  if (endpoint.address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(endpoint.address).sin_addr.s_addr) >> 24 == 127;
  return endpoint.address.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(endpoint.address).sin6_addr);
}

UniqueFd listen_at(const TcpEndpoint& endpoint) {
  UniqueFd fd = make_socket(endpoint);
  if (!fd || bind(fd.get(), endpoint.get(), endpoint.size) != 0 || listen(fd.get(), SOMAXCONN) != 0)
    return failed(std::move(fd));
  return fd;
}

UniqueFd begin_connecting(const TcpEndpoint& endpoint) {
  UniqueFd fd = make_socket(endpoint);
  if (!fd || (connect(fd.get(), endpoint.get(), endpoint.size) != 0 && errno != EINPROGRESS && errno != EINTR))
    return failed(std::move(fd));
  return fd;
}

std::string near_end(int fd) { return end_of(getsockname, fd); }

std::string ends_of(int fd) {
  const std::string far = end_of(getpeername, fd);
  return far.empty() ? "" : near_end(fd) + " " + far;
}

}  // namespace tutti::comm
