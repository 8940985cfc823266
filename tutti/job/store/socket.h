// TCP sockets as the store needs them: close-on-exec, non-blocking, with errors that name address and reason.
#pragma once

#include <sys/socket.h>

#include <string>

#include "tutti/job/store/store_rules.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// "127.0.0.1:29500", "[::1]:29500"
std::string to_text(const sockaddr_storage& address);
std::string host_and_port(const std::string& host, int port);
// The loopback address that `host` (a name or a number) stands for, 127.0.0.1 where it is one of several; "" when the
// host is another one or unknown.
std::string loopback_of(const std::string& host);

// One pass over the addresses of the host. An invalid UniqueFd and the reason in `error` when none answers.
// EnvironmentError for 127.0.0.1 on a host whose loopback interface is down: waiting would not help.
UniqueFd try_connect(const std::string& host, int port, const StoreDeadline& deadline, std::string& error);

// Listens on `bind_address` ("" = every address of this host, IPv6 and IPv4) and `port` (0 = the system picks).
// EnvironmentError naming the address and, where /proc tells, the process that holds the port.
UniqueFd listen_on(const std::string& bind_address, int port);
int local_port(int fd);

// Small requests leave at once; an idle connection to a host that has vanished ends (tutti/job/store/silent_host.h).
void tune_connection(int fd);

// "pid 4711 (tutti)" for the process that listens on the TCP port; "" when /proc does not tell.
std::string find_port_owner(int port);

}  // namespace tutti::comm
