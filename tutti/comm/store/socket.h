// TCP sockets as the store needs them: close-on-exec, non-blocking, with errors that name address and reason.
#pragma once

#include <sys/socket.h>

#include <string>
#include <utility>

#include "tutti/comm/store/store_rules.h"

namespace tutti::comm {

// Owns a descriptor.
class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  // Hands the descriptor over to the caller.
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// "127.0.0.1:29500", "[::1]:29500"
std::string to_text(const sockaddr_storage& address);
std::string host_and_port(const std::string& host, int port);
// The loopback address that `host` (a name or a number) stands for, 127.0.0.1 where it is one of several; "" when the
// host is another one or unknown.
std::string loopback_of(const std::string& host);

// One pass over the addresses of the host. An invalid UniqueFd and the reason in `error` when none answers.
UniqueFd try_connect(const std::string& host, int port, const StoreDeadline& deadline, std::string& error);

// Listens on `bind_address` ("" = every address of this host, IPv6 and IPv4) and `port` (0 = the system picks).
// EnvironmentError naming the address and, where /proc tells, the process that holds the port.
UniqueFd listen_on(const std::string& bind_address, int port);
int local_port(int fd);

// Small requests leave at once; a host that vanished is noticed within half a minute.
void tune_connection(int fd);

// "pid 4711 (tutti)" for the process that listens on the TCP port; "" when /proc does not tell.
std::string find_port_owner(int port);

}  // namespace tutti::comm
