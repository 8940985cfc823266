// RankProcess: a rank that was started as a process, with its handle and the pipes of its output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tutti/job/launch/rank_output.h"

namespace tutti::comm {

class GroupKeeper;

struct SpawnRequest {
  int rank = 0;
  std::string program;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // complete
  // Where stdout and stderr go; set both or neither. If not set, the rank inherits those of this program.
  std::optional<OutputPlan> out, err;
  sigset_t signal_mask;                 // the signal mask that the child starts with
  int inherited_fd = -1;                // a descriptor that the child has under the same number; -1: none
  const GroupKeeper* keeper = nullptr;  // outlives the object; nullptr: none
  std::chrono::milliseconds unkillable_after =
      std::chrono::seconds(30);  // so long the destructor waits for the end of what it has killed
};

// The rank leads its own process group, which is killed when the rank ends.
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
  int exit_fd() const { return ended_ ? -1 : pidfd_; }   // readable once the process has ended
  int out_fd() const { return out_ ? out_->fd() : -1; }  // -1 if output is not captured or has ended
  int err_fd() const { return err_ ? err_->fd() : -1; }

  // Sends a signal to the rank alone, or to it and all processes of its group.
  void signal(int number) const;
  void signal_group(int number) const;
  // Waits for it no longer, as if SIGKILL had ended it.
  void abandon();
  // Collects the exit status once the process has ended, and kills processes it has left behind; false while it runs.
  bool reap();
  void forward_output();
  // The last lines of its captured stderr, oldest first.
  std::deque<std::string> last_lines() const;

 private:
  void wait();
  int rank_;
  const GroupKeeper* keeper_;
  std::chrono::milliseconds unkillable_after_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<RankOutput> out_, err_;
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace tutti::comm
