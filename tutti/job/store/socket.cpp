#include "tutti/job/store/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "tutti/job/store/silent_host.h"

namespace tutti::comm {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Empty and a reason in `error` when the name is unknown.
std::vector<Address> resolve(const std::string& host, int port, std::string& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int result = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  std::vector<Address> addresses;
  if (result != 0) {
    error = result == EAI_SYSTEM ? detail::errno_text(errno) : gai_strerror(result);
    return addresses;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.size = info->ai_addrlen;
  }
  return addresses;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  }
  return address.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// While nobody listens on a port that the system hands out, a socket can get that port itself and reach itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage mine{}, theirs{};
  socklen_t size = sizeof mine, peer_size = sizeof theirs;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &size) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &peer_size) == 0 && to_text(mine) == to_text(theirs);
}

// 0 or the errno.
int connect_one(int fd, const Address& address, const StoreDeadline& deadline) {
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd waited{.fd = fd, .events = POLLOUT, .revents = 0};
  int ready = 0;
  do {
    if (deadline.has_passed()) return ETIMEDOUT;
    ready = poll(&waited, 1, deadline.poll_milliseconds());
  } while (ready == 0 || (ready < 0 && errno == EINTR));
  if (ready < 0) return errno;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error != 0 ? error : is_connected_to_itself(fd) ? ECONNREFUSED : 0;
}

void set_option(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

// 0 or the errno.
int listen_one(UniqueFd& fd, const Address& address) {
  fd = UniqueFd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) return errno;
  return listen(fd.get(), 4096) == 0 ? 0 : errno;
}

}  // namespace

std::string host_and_port(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string to_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return host_and_port(text, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return host_and_port(text, ntohs(v6.sin6_port));
}

std::string loopback_of(const std::string& host) {
  std::string error, found;
  for (const Address& address : resolve(host, 0, error)) {
    if (!is_loopback(address.storage)) continue;
    std::string text = to_text(address.storage);
    text.resize(text.rfind(':'));
    if (text.front() == '[') text = text.substr(1, text.size() - 2);
    if (found.empty() || text == "127.0.0.1") found = text;
  }
  return found;
}

UniqueFd try_connect(const std::string& host, int port, const StoreDeadline& deadline, std::string& error) {
  // One address that swallows packets must not use up the time of the others.
  const StoreDeadline patience(std::chrono::seconds(5));
  for (const Address& address : resolve(host, port, error)) {
    UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int result =
        fd ? connect_one(fd.get(), address, deadline.moment() < patience.moment() ? deadline : patience) : errno;
    if (result == 0) {
      tune_connection(fd.get());
      return fd;
    }
    TUTTI_CHECK_ENV(result != ENETUNREACH || address.storage.ss_family != AF_INET || !is_loopback(address.storage),
                    "store: {} cannot be reached, because the loopback interface of this host or container is down "
                    "({}); bring it up: ip link set lo up",
                    to_text(address.storage), detail::errno_text(result));
    error = fmt::format("{} ({})", detail::errno_text(result), to_text(address.storage));
  }
  return UniqueFd();
}

UniqueFd listen_on(const std::string& bind_address, int port) {
  TUTTI_CHECK(port >= 0 && port <= 65535, "store: port {} to listen on; it must be 0 to 65535", port);
  const std::vector<std::string> wanted =
      bind_address.empty() ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector<std::string>{bind_address};
  std::string reason;
  for (const std::string& host : wanted) {
    for (const Address& address : resolve(host, port, reason)) {
      UniqueFd fd;
      const int result = listen_one(fd, address);
      if (result == 0) return fd;
      reason = detail::errno_text(result);
      if (result != EADDRINUSE) continue;
      const std::string owner = find_port_owner(port);
      throw EnvironmentError(
          fmt::format("store server: cannot listen on {}: {}{}; choose another port, or port 0 for any that is free",
                      to_text(address.storage), reason, owner.empty() ? "" : fmt::format(" by {}", owner)));
    }
  }
  throw EnvironmentError(
      fmt::format("store server: cannot listen on {}: {}", host_and_port(wanted.back(), port), reason));
}

int local_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  TUTTI_CHECK_ENV(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0,
                  "store server: its own port is unknown: {}", detail::errno_text(errno));
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
}

void tune_connection(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  end_when_host_is_silent(fd);
}

}  // namespace tutti::comm
