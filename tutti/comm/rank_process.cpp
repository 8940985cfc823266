#include "tutti/comm/rank_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "tutti/core/error.h"

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

}  // namespace

RankProcess::RankProcess(const SpawnRequest& request) : rank_(request.rank) {
  int pipe_fds[2] = {-1, -1};
  if (request.capture_output) {
    TUTTI_CHECK_ENV(pipe2(pipe_fds, O_CLOEXEC) == 0, "cannot make a pipe for rank {}: {}", rank_,
                    detail::errno_text(errno));
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
  }
  SpawnActions spawn;
  posix_spawn_file_actions_addopen(&spawn.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (request.capture_output) {
    posix_spawn_file_actions_adddup2(&spawn.files, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&spawn.files, pipe_fds[1], STDERR_FILENO);
  }
  // Onto itself: keeps the descriptor open in the child.
  if (request.inherited_fd >= 0) {
    posix_spawn_file_actions_adddup2(&spawn.files, request.inherited_fd, request.inherited_fd);
  }
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  sigaddset(&defaults, SIGTERM);
  posix_spawnattr_setsigdefault(&spawn.attributes, &defaults);
  posix_spawnattr_setsigmask(&spawn.attributes, &request.signal_mask);
  // A group of its own: Ctrl-C in a terminal reaches the launcher alone, which passes it on exactly once.
  posix_spawnattr_setpgroup(&spawn.attributes, 0);
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&pid_, request.program.c_str(), &spawn.files, &spawn.attributes,
                                pointers(request.argv).data(), pointers(request.environment).data());
  if (pipe_fds[1] >= 0) close(pipe_fds[1]);
  output_fd_ = pipe_fds[0];
  if (error == 0) pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (error != 0 || pidfd_ < 0) {
    const int cause = error != 0 ? error : errno;
    if (output_fd_ >= 0) close(output_fd_);
    if (error == 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    detail::throw_environment(
        fmt::format("cannot start rank {} ({}): {}", rank_, request.program, detail::errno_text(cause)));
  }
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      pid_(other.pid_),
      pidfd_(std::exchange(other.pidfd_, -1)),
      output_fd_(std::exchange(other.output_fd_, -1)),
      ended_(std::exchange(other.ended_, true)),
      wait_status_(other.wait_status_),
      pending_(std::move(other.pending_)) {}

RankProcess::~RankProcess() {
  if (!ended_) {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pidfd_ >= 0) close(pidfd_);
  if (output_fd_ >= 0) close(output_fd_);
}

void RankProcess::signal(int number) const {
  if (!ended_) kill(pid_, number);
}

bool RankProcess::reap() {
  if (!ended_ && waitpid(pid_, &wait_status_, WNOHANG) == pid_) ended_ = true;
  return ended_;
}

void RankProcess::forward_output() {
  char buffer[4096];
  while (output_fd_ >= 0) {
    const ssize_t got = read(output_fd_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got > 0) {
      pending_.append(buffer, static_cast<size_t>(got));
      print_lines(false);
      continue;
    }
    print_lines(true);
    close(std::exchange(output_fd_, -1));
  }
}

void RankProcess::print_lines(bool at_end) {
  size_t begin = 0;
  std::string text;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    text += fmt::format("[rank {}] {}\n", rank_, pending_.substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  if (at_end && !pending_.empty()) text += fmt::format("[rank {}] {}\n", rank_, std::exchange(pending_, ""));
  std::fputs(text.c_str(), stderr);
}

}  // namespace tutti::comm
