#include "tutti/job/store/peer_uid.h"

#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {
namespace {

struct End {
  sockaddr_storage address{};
  bool is_v4() const { return address.ss_family == AF_INET; }
  // In the byte order of the network; the table shows them as numbers of this host.
  const uint32_t* words() const {
    return is_v4() ? &reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr32;
  }
  uint16_t port() const {
    return is_v4() ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  }
  std::string text() const {
    std::string text;
    for (int i = 0; i < (is_v4() ? 1 : 4); ++i) text += fmt::format("{:08X}", words()[i]);
    return fmt::format("{}:{:04X}", text, ntohs(port()));
  }
};

// One look-up by both ends, however many sockets the host has.
std::optional<uid_t> ask_the_kernel(const End& near, const End& far) {
  const UniqueFd netlink(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink) return std::nullopt;
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } request{};
  request.head = {.nlmsg_len = sizeof request,
                  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                  .nlmsg_flags = NLM_F_REQUEST,
                  .nlmsg_seq = 0,
                  .nlmsg_pid = 0};
  request.body.sdiag_family = near.is_v4() ? AF_INET : AF_INET6;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  const size_t bytes = near.is_v4() ? 4 : 16;
  std::memcpy(request.body.id.idiag_src, near.words(), bytes);
  std::memcpy(request.body.id.idiag_dst, far.words(), bytes);
  request.body.id.idiag_sport = near.port();
  request.body.id.idiag_dport = far.port();
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (send(netlink.get(), &request, sizeof request, 0) != sizeof request) return std::nullopt;
  alignas(nlmsghdr) char reply[4096];
  const ssize_t got = recv(netlink.get(), reply, sizeof reply, MSG_DONTWAIT);
  const auto* head = reinterpret_cast<const nlmsghdr*>(reply);
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) || head->nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return std::nullopt;
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(head));
  if (found->idiag_inode == 0)
    return std::nullopt;  // closed by its process: it has no owner any more, and counts as root's
  return found->idiag_uid;
}

}  // namespace

std::optional<uid_t> uid_in_socket_table(std::string_view table, std::string_view near, std::string_view far) {
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retries, timeout;
    uid_t uid = 0;
    uint64_t inode = 0;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> uid >> timeout >> inode;
    if (fields && inode != 0 && local == near && remote == far) return uid;
  }
  return std::nullopt;
}

std::optional<uid_t> uid_of_peer(int fd) {
  End mine, theirs;
  socklen_t size = sizeof mine.address, peer_size = sizeof theirs.address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine.address), &size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&theirs.address), &peer_size) != 0) {
    return std::nullopt;
  }
  if (const auto uid = ask_the_kernel(theirs, mine)) return uid;
  std::ifstream file(mine.is_v4() ? "/proc/net/tcp" : "/proc/net/tcp6");
  if (!file) return geteuid();  // a sandbox in which nobody can be asked
  std::ostringstream table;
  table << file.rdbuf();
  return uid_in_socket_table(table.str(), theirs.text(), mine.text());
}

}  // namespace tutti::comm
