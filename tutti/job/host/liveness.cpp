#include "tutti/job/host/liveness.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace tutti::comm {

Liveness::Liveness(std::vector<pid_t> pids) : pids_(std::move(pids)), pidfds_(pids_.size()) {}

bool Liveness::is_dead(int rank) {
  const pid_t pid = pids_[static_cast<size_t>(rank)];
  if (pid == 0 || pid == getpid()) return false;
  const std::lock_guard lock(mutex_);
  UniqueFd& fd = pidfds_[static_cast<size_t>(rank)];
  if (!fd) {
    fd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!fd) return errno == ESRCH;
  }
  pollfd peer{.fd = fd.get(), .events = POLLIN, .revents = 0};
  return poll(&peer, 1, 0) == 1;
}

int Liveness::find_dead(std::chrono::milliseconds patience) {
  for (size_t r = 0; r < pids_.size(); ++r) {
    if (is_dead(static_cast<int>(r))) return static_cast<int>(r);
  }
  if (patience.count() <= 0) return -1;
  std::vector<pollfd> peers;
  {
    const std::lock_guard lock(mutex_);
    for (const UniqueFd& fd : pidfds_)
      peers.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});  // -1 is left out
  }
  if (poll(peers.data(), peers.size(), static_cast<int>(patience.count())) <= 0) return -1;
  return find_dead();
}

}  // namespace tutti::comm
