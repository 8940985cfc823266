#include "tutti/job/host/fd_channel.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Moment = std::chrono::steady_clock::time_point;

constexpr uint64_t kMagic = 0x3164662d69747574;
constexpr size_t kMaxText = 2000;
constexpr size_t kMaxFds = 253;  // of one packet; the kernel refuses more

int milliseconds_until(Moment deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

// False at the deadline.
bool wait_for(int fd, short events, Moment deadline) {
  while (true) {
    pollfd waited{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&waited, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;

  explicit AbstractAddress(const std::string& name) {
    TUTTI_ASSERT(name.size() + 1 <= sizeof address.sun_path, "socket name of {} bytes", name.size());
    address.sun_family = AF_UNIX;
    // A leading zero byte: the name lives in the kernel, not in the file system.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

UniqueFd new_socket() { return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

std::string random_token() {
  std::array<uint64_t, 2> bits{};
  TUTTI_CHECK_ENV(getrandom(bits.data(), sizeof bits, 0) == static_cast<ssize_t>(sizeof bits),
                  "the system gives no random numbers: {}", detail::errno_text(errno));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

UniqueFd listen_at(const std::string& name, int backlog) {
  UniqueFd fd = new_socket();
  TUTTI_CHECK_ENV(fd, "cannot make a socket to pass descriptors: {}", detail::errno_text(errno));
  const AbstractAddress address(name);
  TUTTI_CHECK_ENV(bind(fd.get(), address.get(), address.size) == 0 && listen(fd.get(), backlog) == 0,
                  "cannot listen for descriptors at @{}: {}", name, detail::errno_text(errno));
  return fd;
}

int connect_to(const std::string& name, Moment deadline, UniqueFd& connection) {
  connection = new_socket();
  if (!connection) return errno;
  const AbstractAddress address(name);
  while (connect(connection.get(), address.get(), address.size) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    // The queue of connections not yet accepted is full.
    if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
    const timespec moment{.tv_sec = 0, .tv_nsec = 200'000};
    nanosleep(&moment, nullptr);
  }
  return 0;
}

PeerCredentials credentials_of(int connection) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  TUTTI_CHECK_ENV(getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0,
                  "the other end of a socket is unknown: {}", detail::errno_text(errno));
  return {.pid = credentials.pid, .uid = credentials.uid};
}

int send_packet(int connection, FdPacketHeader header, std::string_view text, std::span<const int> fds,
                Moment deadline) {
  TUTTI_ASSERT(fds.size() <= kMaxFds, "{} descriptors in a packet", fds.size());
  text = text.substr(0, kMaxText);
  header.magic = kMagic;
  header.descriptors = static_cast<uint32_t>(fds.size());
  header.text_bytes = static_cast<uint32_t>(text.size());
  iovec parts[2] = {{.iov_base = &header, .iov_len = sizeof header},
                    {.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  while (sendmsg(connection, &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    if (!wait_for(connection, POLLOUT, deadline)) return ETIMEDOUT;
  }
  return 0;
}

FdReadStatus read_packet(int connection, FdPacket& packet, std::string& problem) {
  packet = FdPacket();
  std::array<char, kMaxText> text{};
  iovec parts[2] = {{.iov_base = &packet.header, .iov_len = sizeof packet.header},
                    {.iov_base = text.data(), .iov_len = text.size()}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return FdReadStatus::nothing_yet;
  if (got <= 0) return FdReadStatus::closed;
  // First of all own what came, whatever the packet is worth.
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  const size_t nbytes = static_cast<size_t>(got);
  if (nbytes < sizeof packet.header || packet.header.magic != kMagic) {
    problem = fmt::format("a packet of {} bytes that this version does not know", nbytes);
  } else if ((message.msg_flags & MSG_TRUNC) != 0 || packet.header.text_bytes != nbytes - sizeof packet.header) {
    problem = fmt::format("a packet of {} bytes that should have {}", nbytes,
                          sizeof packet.header + packet.header.text_bytes);
  } else if ((message.msg_flags & MSG_CTRUNC) != 0 || packet.header.descriptors != packet.fds.size()) {
    problem = fmt::format("{} of {} descriptors; the process may have too many open files (ulimit -n)",
                          packet.fds.size(), packet.header.descriptors);
  } else {
    packet.text.assign(text.data(), packet.header.text_bytes);
    return FdReadStatus::packet;
  }
  return FdReadStatus::malformed;
}

bool wait_readable(int connection, Moment deadline) { return wait_for(connection, POLLIN, deadline); }

}  // namespace tutti::comm
