// One rank started as a process: its handle, and the pipe its output comes through.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace tutti::comm {

struct SpawnRequest {
  int rank = 0;
  std::string program;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // complete
  int inherited_fd = -1;
  bool capture_output = false;  // out and err go to the pipe instead of this program's own
  sigset_t signal_mask;         // what the child starts with
};

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
  int output_fd() const { return output_fd_; }          // -1 without or at the end of captured output

  void signal(int number) const;
  // Collects the status of a process that has ended; false while it runs.
  bool reap();
  // Prints the whole lines that have come in, behind "[rank r] "; at the end of the output also the last unfinished
  // one.
  void forward_output();

 private:
  void print_lines(bool at_end);
  int rank_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int output_fd_ = -1;
  bool ended_ = false;
  int wait_status_ = 0;
  std::string pending_;
};

}  // namespace tutti::comm
