#include "tutti/job/launch/group_keeper.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int kMaxGroups = 4096;
constexpr unsigned kSignalGroup = 1 << 2;  // PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9

struct Group {
  pid_t leader;
  int pidfd;
};

// By the handle where the kernel can: the number may be free again once the leader and all of its group are gone.
void kill_group(const Group& group) {
  const bool told =
      group.pidfd >= 0 && syscall(SYS_pidfd_send_signal, group.pidfd, SIGKILL, nullptr, kSignalGroup) == 0;
  if (!told && (group.pidfd < 0 || errno == EINVAL)) kill(-group.leader, SIGKILL);
}

// The keeper's process. The launcher may have had other threads when it forked, so that only system calls are allowed
// here.
[[noreturn]] void keep_groups(int launcher) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, "tutti-keeper");
  // Nothing of the launcher stays open here: neither its output, which others read to its end, nor the ports of its
  // stores.
  dup2(launcher, 0);
  if (syscall(SYS_close_range, 1u, ~0u, 0u) != 0) {
    for (int fd = 1; fd < (1 << 16); ++fd) close(fd);
  }
  static std::array<Group, kMaxGroups> groups;
  static std::array<pollfd, kMaxGroups> ends;
  int count = 0;
  pid_t word = 0;
  while (true) {
    const ssize_t got = recv(0, &word, sizeof word, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof word) break;
    if (word > 0 && count < kMaxGroups)
      groups[static_cast<size_t>(count++)] = {word, static_cast<int>(syscall(SYS_pidfd_open, word, 0))};
    for (int i = 0; word < 0 && i < count; ++i) {
      if (groups[static_cast<size_t>(i)].leader != -word) continue;
      close(groups[static_cast<size_t>(i)].pidfd);
      groups[static_cast<size_t>(i)] = groups[static_cast<size_t>(--count)];
      break;
    }
  }
  while (count > 0) {
    for (int i = count - 1; i >= 0; --i) {
      const Group group = groups[static_cast<size_t>(i)];
      pollfd end{.fd = group.pidfd, .events = POLLIN, .revents = 0};
      if (group.pidfd >= 0 && poll(&end, 1, 0) == 0) continue;
      kill_group(group);
      close(group.pidfd);
      groups[static_cast<size_t>(i)] = groups[static_cast<size_t>(--count)];
    }
    for (int i = 0; i < count; ++i)
      ends[static_cast<size_t>(i)] = {.fd = groups[static_cast<size_t>(i)].pidfd, .events = POLLIN, .revents = 0};
    if (count > 0) poll(ends.data(), static_cast<nfds_t>(count), -1);
  }
  _exit(0);
}

}  // namespace

GroupKeeper::GroupKeeper() {
  int fds[2];
  TUTTI_CHECK_ENV(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0,
                  "cannot make the connection to the keeper of the ranks: {}", detail::errno_text(errno));
  fd_ = UniqueFd(fds[0]);
  const UniqueFd theirs(fds[1]);
  pid_ = fork();
  TUTTI_CHECK_ENV(pid_ >= 0, "cannot start the keeper of the ranks: {}", detail::errno_text(errno));
  if (pid_ == 0) keep_groups(theirs.get());
}

GroupKeeper::~GroupKeeper() {
  {
    const UniqueFd closed = std::move(fd_);
  }
  waitpid(pid_, nullptr, 0);
}

void GroupKeeper::tell(pid_t word) const {
  // Where the keeper is gone the ranks run without one.
  [[maybe_unused]] const ssize_t put = send(fd_.get(), &word, sizeof word, MSG_NOSIGNAL);
}

}  // namespace tutti::comm
