#include "tutti/job/store/silent_host.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace tutti::comm {
namespace {

constexpr int kIdleSeconds = 2, kSecondsBetweenProbes = 1;

void set_keepalive(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

}  // namespace

// Not TCP_USER_TIMEOUT: it also ends connections to processes that do not read, whose kernels answer every probe.
void end_when_host_is_silent(int fd) {
  set_keepalive(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_keepalive(fd, IPPROTO_TCP, TCP_KEEPINTVL, kSecondsBetweenProbes);
  set_keepalive(fd, IPPROTO_TCP, TCP_KEEPCNT,
                static_cast<int>(kSilenceOfAHost.count() - kIdleSeconds) / kSecondsBetweenProbes);
  set_keepalive(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool SilenceWatch::is_silent(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool is_known = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  // A repeated packet, since an acknowledgement came. Probes of a window that is shut are answered, and are not counted
  // here.
  if (!is_known || info.tcpi_unacked == 0 || info.tcpi_retransmits == 0) {
    since_.reset();
    return false;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!since_) since_ = now;
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kSilenceOfAHost);
  return now - *since_ >= limit && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= limit;
}

}  // namespace tutti::comm
