// The ranks of one launcher during one attempt: starts them, supervises them, records failures, and ends them.
#pragma once

#include <poll.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/job/launch/failure.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/launch/rank_process.h"
#include "tutti/job/launch/stopped_ranks.h"

namespace tutti::comm {

class GroupKeeper;
class JobFile;

class RankTeam {
 public:
  using Clock = std::chrono::steady_clock;

  // `first` is the first rank's place; the others count on from there. `where` tells the node, "" when there is one
  // only. EnvironmentError when a rank cannot be started; those that were are killed. With `job` the ranks outlive one
  // of them, and `restarts_left` replacements are started; one that cannot be started, or that ends before it has
  // joined the others, is reported, and the others go on. `keeper` ends what the ranks leave when this process is
  // killed, and outlives the object.
  RankTeam(const LaunchOptions& options, const LaunchedRank& first, const std::string& where, const sigset_t& mask,
           const GroupKeeper& keeper, std::shared_ptr<JobFile> job = nullptr, int restarts_left = 0);

  bool is_running() const;
  // True when a rank has ended because of a signal that was passed on to it.
  bool was_interrupted() const { return was_interrupted_; }
  // How many replacements were started.
  int replacements() const { return replacements_; }
  // The descriptors to wait for, and the latest time to continue.
  void add_descriptors(std::vector<pollfd>& fds) const;
  std::optional<Clock::time_point> next_act() const;

  // Forwards output, collects ranks that have ended, and takes due steps to end the others. Returns new failures.
  std::vector<LaunchFailure> look();
  // Which ranks have been stopped, or go on again, since the last call.
  std::vector<std::string> look_for_stopped();
  // Passes a signal on; the third one that asks the job to end kills the ranks.
  void pass_on(int number);
  // A rank elsewhere has failed: the ranks have a moment to notice, then get SIGTERM, then SIGKILL.
  void begin_the_end();

 private:
  void start(int local, int restart);
  void judge(const RankProcess& process, std::vector<LaunchFailure>& failures);
  bool is_survived(const RankProcess& process);
  bool is_ready(const RankProcess& process) const;
  void start_replacement(int local);
  void publish();
  void regroup(std::vector<LaunchFailure>& failures);
  void end_when_due();
  void kill_all();
  void go_without_the_killed();

  const LaunchOptions& options_;
  const LaunchedRank first_;
  const std::string where_;
  const sigset_t mask_;
  const GroupKeeper& keeper_;
  std::string log_folder_;
  std::vector<RankProcess> processes_;
  const std::shared_ptr<JobFile> job_;  // null: the end of a rank is the end of all
  int restarts_left_ = 0, replacements_ = 0;
  std::vector<int> lost_;                         // ranks of this node, since the last team was said
  bool has_finished_ = false, has_left_ = false;  // a rank has ended well; since the last team was said
  std::vector<pid_t> ready_;  // processes that are or were in a team; the others are replacements that begin
  StoppedRanks stopped_;
  int end_signals_ = 0;
  bool was_interrupted_ = false;
  enum class Ending { none, noticing, terminating, killing } ending_ = Ending::none;
  std::optional<Clock::time_point> act_at_;
};

}  // namespace tutti::comm
