// A connection between two processes of a host that carries short texts and file descriptors; used by fd_passing.h.
//
// Packet boundaries are preserved. Every call has a deadline; none blocks signals or raises one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// The header of a packet.
enum class FdPacketKind : uint32_t { hello = 1, descriptors, failure, misuse, timeout };

struct FdPacketHeader {
  uint64_t magic = 0;  // also the version
  FdPacketKind kind = FdPacketKind::hello;
  int32_t rank = -1;
  int32_t size = 0;
  int32_t root = 0;
  uint32_t descriptors = 0;  // that ride on this packet
  uint32_t text_bytes = 0;   // behind the header: the socket's name (hello) or a reason (failure, misuse, timeout)
};

struct FdPacket {
  FdPacketHeader header;
  std::string text;
  std::vector<UniqueFd> fds;
};

enum class FdReadStatus : uint8_t { packet, nothing_yet, closed, malformed };

// A random number as 32 hexadecimal digits.
std::string random_token();

// Listens under an abstract name of at most 107 bytes, with a backlog of `backlog` connections.
UniqueFd listen_at(const std::string& name, int backlog);
// 0 or the errno: ECONNREFUSED when nobody listens, ETIMEDOUT.
int connect_to(const std::string& name, std::chrono::steady_clock::time_point deadline, UniqueFd& connection);

struct PeerCredentials {
  pid_t pid = 0;  // 0: in a namespace that this process cannot see
  uid_t uid = 0;
};
PeerCredentials credentials_of(int connection);

// 0 or the errno. The text is cut to what fits into a packet.
int send_packet(int connection, FdPacketHeader header, std::string_view text, std::span<const int> fds,
                std::chrono::steady_clock::time_point deadline);
// Never waits. malformed: a packet of another version, a short one, or one that lost descriptors; `problem` says which.
FdReadStatus read_packet(int connection, FdPacket& packet, std::string& problem);
// Waits until the connection is readable; false at the deadline.
bool wait_readable(int connection, std::chrono::steady_clock::time_point deadline);

}  // namespace tutti::comm
