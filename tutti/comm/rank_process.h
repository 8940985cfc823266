// One rank started as a process: its handle, and the pipes its output comes through.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/launch/rank_output.h"

namespace tutti::comm {

struct SpawnRequest {
  int rank = 0;
  std::string program;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // complete
  // Where out and err go; both or neither. Without, the rank shares this program's own.
  std::optional<OutputPlan> out, err;
  sigset_t signal_mask;  // what the child starts with
};

// The rank leads a process group of its own, which ends with it.
class RankProcess {
 public:
  // EnvironmentError when the program cannot be started.
  explicit RankProcess(const SpawnRequest& request);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool is_running() const { return !ended_; }
  int wait_status() const { return wait_status_; }
  int exit_fd() const { return ended_ ? -1 : pidfd_; }  // readable once the process has ended
  int out_fd() const { return out_ ? out_->fd() : -1; }  // -1 without or at the end of captured output
  int err_fd() const { return err_ ? err_->fd() : -1; }

  // To the rank alone, or to whatever it has started as well.
  void signal(int number) const;
  void signal_group(int number) const;
  // Collects the status of a process that has ended, and kills what it has left behind; false while it runs.
  bool reap();
  void forward_output();
  // Of its captured stderr, oldest first.
  std::deque<std::string> last_lines() const;

 private:
  int rank_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<RankOutput> out_, err_;
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace tutti::comm
