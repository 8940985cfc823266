// The user at the other end of a connection over a loopback address.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace tutti::comm {

// Who owns the socket whose near end is the far end of `fd`; nothing when no open socket of this host is it. This user
// where the system has no way to ask (neither sock_diag nor /proc/net/tcp).
std::optional<uid_t> uid_of_peer(int fd);

// The same from the text of /proc/net/tcp or tcp6: `near` and `far` as they stand there, "0100007F:1F90".
std::optional<uid_t> uid_in_socket_table(std::string_view table, std::string_view near, std::string_view far);

}  // namespace tutti::comm
