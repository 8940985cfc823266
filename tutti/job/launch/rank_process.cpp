#include "tutti/job/launch/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/job/launch/group_keeper.h"

namespace tutti::comm {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

struct SpawnActions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnActions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

// A pipe for a stream of the rank: the end to write goes to the child, the other one is read without waiting.
UniqueFd make_pipe(int rank, std::optional<RankOutput>& output, const OutputPlan& plan) {
  int fds[2];
  TUTTI_CHECK_ENV(pipe2(fds, O_CLOEXEC) == 0, "cannot make a pipe for rank {}: {}", rank, detail::errno_text(errno));
  UniqueFd reader(fds[0]), writer(fds[1]);
  fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  output.emplace(std::move(reader), plan);
  return writer;
}

}  // namespace

RankProcess::RankProcess(const SpawnRequest& request)
    : rank_(request.rank), keeper_(request.keeper), unkillable_after_(request.unkillable_after) {
  SpawnActions spawn;
  posix_spawn_file_actions_addopen(&spawn.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  UniqueFd out, err;
  if (request.out && request.err) {
    out = make_pipe(rank_, out_, *request.out);
    err = make_pipe(rank_, err_, *request.err);
    posix_spawn_file_actions_adddup2(&spawn.files, out.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&spawn.files, err.get(), STDERR_FILENO);
  }
  // Onto its own number: that takes away its close-on-exec flag in the child alone.
  if (request.inherited_fd >= 0)
    posix_spawn_file_actions_adddup2(&spawn.files, request.inherited_fd, request.inherited_fd);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  sigaddset(&defaults, SIGTERM);
  sigaddset(&defaults, SIGXFSZ);  // ignored by the tutti program
  posix_spawnattr_setsigdefault(&spawn.attributes, &defaults);
  posix_spawnattr_setsigmask(&spawn.attributes, &request.signal_mask);
  // A group of its own: Ctrl-C in a terminal reaches the launcher alone, which passes it on exactly once.
  posix_spawnattr_setpgroup(&spawn.attributes, 0);
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  int error = posix_spawn(&pid_, request.program.c_str(), &spawn.files, &spawn.attributes,
                          pointers(request.argv).data(), pointers(request.environment).data());
  if (error == 0) {
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    if (pidfd_ < 0) {
      error = errno;
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  TUTTI_CHECK_ENV(error == 0, "cannot start rank {} ({}): {}", rank_, request.program, detail::errno_text(error));
  if (keeper_) keeper_->keep(pid_);
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      keeper_(other.keeper_),
      unkillable_after_(other.unkillable_after_),
      pid_(other.pid_),
      pidfd_(std::exchange(other.pidfd_, -1)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)),
      ended_(std::exchange(other.ended_, true)),
      wait_status_(other.wait_status_) {}

RankProcess::~RankProcess() {
  if (!ended_) {
    signal_group(SIGKILL);
    pollfd end{.fd = pidfd_, .events = POLLIN, .revents = 0};
    const auto until = std::chrono::steady_clock::now() + unkillable_after_;
    int ended = 0;
    do {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      ended = poll(&end, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    } while (ended < 0 && errno == EINTR);
    if (ended == 1) {
      wait();
    } else {
      abandon();
    }
  }
  if (pidfd_ >= 0) close(pidfd_);
}

void RankProcess::signal(int number) const {
  if (!ended_) kill(pid_, number);
}

void RankProcess::signal_group(int number) const {
  if (ended_) return;
  kill(-pid_, number);
  // A rank may have joined another group of its session.
  if (getpgid(pid_) != pid_) kill(pid_, number);
}

bool RankProcess::reap() {
  if (ended_) return true;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_)
    return false;
  // Before its number is free for others: what it has started and left running.
  kill(-pid_, SIGKILL);
  wait();
  return ended_;
}

void RankProcess::abandon() {
  if (keeper_) keeper_->forget(pid_);
  ended_ = true;
  wait_status_ = SIGKILL;
}

void RankProcess::wait() {
  if (keeper_) keeper_->forget(pid_);
  ended_ = waitpid(pid_, &wait_status_, 0) == pid_;
}

void RankProcess::forward_output() {
  if (out_) out_->forward();
  if (err_) err_->forward();
}

std::deque<std::string> RankProcess::last_lines() const {
  return err_ ? err_->last_lines() : std::deque<std::string>();
}

}  // namespace tutti::comm
