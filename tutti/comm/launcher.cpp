#include "tutti/comm/launcher.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>

#include "tutti/comm/rank_environment.h"
#include "tutti/comm/rank_process.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kInterruptedStatus = 130;

// SIGINT and SIGTERM arrive at a descriptor while this lives.
class SignalInbox {
 public:
  SignalInbox() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &old_);
    fd_ = signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SignalInbox() {
    if (fd_ >= 0) close(fd_);
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;
  int fd() const { return fd_; }
  const sigset_t& old_mask() const { return old_; }
  std::optional<int> take() const {
    signalfd_siginfo info{};
    if (read(fd_, &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t set_;
  sigset_t old_;
  int fd_ = -1;
};

std::vector<std::string> environment_with(const std::vector<std::string>& extra) {
  std::vector<std::string> result;
  const auto name_of = [](const std::string& variable) { return variable.substr(0, variable.find('=') + 1); };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool replaced = std::any_of(extra.begin(), extra.end(), [&](const std::string& e) {
      return std::string(*variable).starts_with(name_of(e));
    });
    if (!replaced) result.emplace_back(*variable);
  }
  result.insert(result.end(), extra.begin(), extra.end());
  return result;
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options), segment_(ShmSegment::create(options.ranks)) {
    for (int r = 0; r < options.ranks; ++r) start(r);
  }

  int run() {
    while (has_work()) {
      wait_for_event();
      for (RankProcess& process : processes_) process.forward_output();
      pass_signals_on();
      collect_ended();
      end_the_others();
    }
    if (failed_rank_ >= 0) {
      const RankProcess& process = processes_[failed_rank_];
      std::fprintf(stderr, "%s\n", describe_exit(failed_rank_, process.pid(), process.wait_status()).c_str());
      const int status = process.wait_status();
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return was_interrupted_ ? kInterruptedStatus : 0;
  }

 private:
  void start(int rank) {
    std::vector<std::string> extra = options_.environment;
    const RankEnvironment place{
        .rank = rank, .world_size = options_.ranks, .shm_fd = segment_->fd(), .launcher_pid = getpid()};
    for (std::string& variable : place.to_variables()) extra.push_back(std::move(variable));
    processes_.emplace_back(SpawnRequest{.rank = rank,
                                         .program = options_.program,
                                         .argv = options_.argv,
                                         .environment = environment_with(extra),
                                         .inherited_fd = segment_->fd(),
                                         .capture_output = rank != 0,
                                         .signal_mask = inbox_.old_mask()});
    segment_->announce(rank, processes_.back().pid());
  }

  // Output of a rank that has ended is read to its end; a grandchild that keeps the pipe open does not hold us up.
  bool has_work() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const RankProcess& p) { return p.is_running(); });
  }

  void wait_for_event() {
    std::vector<pollfd> fds{{.fd = inbox_.fd(), .events = POLLIN, .revents = 0}};
    for (const RankProcess& process : processes_) {
      fds.push_back({.fd = process.exit_fd(), .events = POLLIN, .revents = 0});
      fds.push_back({.fd = process.output_fd(), .events = POLLIN, .revents = 0});
    }
    int limit_ms = -1;
    if (act_at_) {
      limit_ms = static_cast<int>(std::max<int64_t>(
          0, std::chrono::duration_cast<std::chrono::milliseconds>(*act_at_ - Clock::now()).count() + 1));
    }
    poll(fds.data(), fds.size(), limit_ms);
  }

  void pass_signals_on() {
    while (const std::optional<int> number = inbox_.take()) {
      ++signals_seen_;
      for (const RankProcess& process : processes_) process.signal(signals_seen_ >= 3 ? SIGKILL : *number);
      ours_ |= signals_seen_ >= 3;
    }
  }

  void collect_ended() {
    for (RankProcess& process : processes_) {
      if (!process.is_running() || !process.reap()) continue;
      process.forward_output();
      judge(process);
    }
  }

  // The first failure is the culprit. One exception: ranks that report a dead peer may be seen before the peer itself,
  // and a rank killed by a signal that is not ours is always the cause.
  void judge(const RankProcess& process) {
    const int status = process.wait_status();
    const bool killed = WIFSIGNALED(status);
    if (!killed && WEXITSTATUS(status) == 0) return;
    const int number = killed ? WTERMSIG(status) : 0;
    const bool asked = signals_seen_ > 0 && (killed ? number == SIGINT || number == SIGTERM || ours_
                                                    : WEXITSTATUS(status) == kInterruptedStatus);
    if (asked) {
      was_interrupted_ = true;
      return;
    }
    const bool by_us = ending_others_ && (number == SIGTERM || (ours_ && number == SIGKILL));
    const bool have_killed = failed_rank_ >= 0 && WIFSIGNALED(processes_[failed_rank_].wait_status());
    if (failed_rank_ < 0 || (killed && !by_us && !have_killed)) failed_rank_ = process.rank();
  }

  // Not at once: a rank that meets the others finds out by itself, and is still to say what it knows.
  void end_the_others() {
    if (failed_rank_ < 0) return;
    if (!saw_failure_) {
      saw_failure_ = true;
      act_at_ = Clock::now() + options_.notice;
    }
    if (!act_at_ || Clock::now() < *act_at_) return;
    if (!ending_others_) {
      ending_others_ = true;
      act_at_ = Clock::now() + options_.grace;
      for (const RankProcess& process : processes_) process.signal(SIGTERM);
    } else {
      act_at_.reset();
      ours_ = true;
      for (const RankProcess& process : processes_) process.signal(SIGKILL);
    }
  }

  const LaunchOptions& options_;
  SignalInbox inbox_;
  std::shared_ptr<ShmSegment> segment_;
  std::vector<RankProcess> processes_;
  int signals_seen_ = 0;
  int failed_rank_ = -1;
  bool was_interrupted_ = false;
  bool saw_failure_ = false;
  bool ending_others_ = false;  // we have sent SIGTERM
  bool ours_ = false;  // we have sent SIGKILL
  std::optional<Clock::time_point> act_at_;  // SIGTERM is due, then SIGKILL
};

}  // namespace

std::string describe_exit(int rank, int pid, int wait_status) {
  if (WIFEXITED(wait_status)) {
    return fmt::format("rank {} (pid {}) exited with status {}", rank, pid, WEXITSTATUS(wait_status));
  }
  const char* name = sigabbrev_np(WTERMSIG(wait_status));
  return fmt::format("rank {} (pid {}) was killed by {}", rank, pid,
                     name ? fmt::format("SIG{}", name) : fmt::format("signal {}", WTERMSIG(wait_status)));
}

int launch_local(const LaunchOptions& options) {
  return Launch(options).run();
}

}  // namespace tutti::comm
