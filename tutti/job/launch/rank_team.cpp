#include "tutti/job/launch/rank_team.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/job/host/job_file.h"
#include "tutti/job/launch/launch_signals.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {
namespace {

// How often a launcher looks whether a replacement is ready to join.
constexpr std::chrono::milliseconds kLookForReady{10};

// This process's environment without what another launcher, or the user for this one, has put there for the ranks.
std::vector<std::string> environment_with(const std::vector<std::string>& extra) {
  std::vector<std::string> result;
  const auto name_of = [](const std::string& variable) { return variable.substr(0, variable.find('=') + 1); };
  const bool has_key =
      std::any_of(extra.begin(), extra.end(), [](const std::string& e) { return e.starts_with("TUTTI_JOB_KEY="); });
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const bool replaced =
        text.starts_with("TUTTI_JOB_FILE=") || (has_key && text.starts_with("TUTTI_JOB_KEY_FILE=")) ||
        std::any_of(extra.begin(), extra.end(), [&](const std::string& e) { return text.starts_with(name_of(e)); });
    if (!replaced) result.push_back(text);
  }
  result.insert(result.end(), extra.begin(), extra.end());
  return result;
}

std::string make_log_folder(const LaunchOptions& options, int restart) {
  if (options.log_dir.empty()) return "";
  const std::filesystem::path folder = std::filesystem::path(options.log_dir) / std::to_string(restart);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  TUTTI_CHECK_ENV(!error, "cannot make the folder {} for the output of the ranks: {}", folder.string(),
                  error.message());
  return folder.string();
}

}  // namespace

RankTeam::RankTeam(const LaunchOptions& options, const LaunchedRank& first, const std::string& where,
                   const sigset_t& mask, const GroupKeeper& keeper, std::shared_ptr<JobFile> job, int restarts_left)
    : options_(options),
      first_(first),
      where_(where),
      mask_(mask),
      keeper_(keeper),
      log_folder_(make_log_folder(options, first.restart)),
      job_(std::move(job)),
      restarts_left_(restarts_left),
      stopped_(where) {
  for (int local = 0; local < options.ranks; ++local) start(local, first.restart);
  if (!job_) return;
  for (const RankProcess& process : processes_) ready_.push_back(process.pid());
  publish();
}

void RankTeam::start(int local, int restart) {
  LaunchedRank place = first_;
  place.rank += local;
  place.local_rank = local;
  place.restart = restart;
  std::vector<std::string> extra = options_.environment;
  for (std::string& variable : rank_variables(place)) extra.push_back(std::move(variable));
  for (std::string& variable :
       rank_defaults(options_.ranks, usable_cores(), [](const char* name) { return std::getenv(name) != nullptr; })) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const bool chosen =
        std::any_of(extra.begin(), extra.end(), [&](const std::string& e) { return e.starts_with(name); });
    if (!chosen) extra.push_back(std::move(variable));
  }
  if (job_) extra.push_back(job_->variable());
  SpawnRequest request{.rank = place.rank,
                       .program = options_.program,
                       .argv = options_.argv,
                       .environment = environment_with(extra),
                       .signal_mask = mask_,
                       .inherited_fd = job_ ? job_->fd() : -1,
                       .keeper = &keeper_,
                       .unkillable_after = options_.unkillable_after};
  if (options_.all_prefixed || place.rank != 0) {
    const bool shown = log_folder_.empty() || options_.tee;
    const std::string again = restart == first_.restart ? "" : fmt::format("-restart{}", restart);
    const std::string prefix = fmt::format("[rank {}] ", place.rank),
                      file = log_folder_.empty() ? "" : fmt::format("{}/rank{}{}", log_folder_, place.rank, again);
    request.out = {.prefix = prefix,
                   .console = !shown                  ? nullptr
                              : options_.all_prefixed ? stdout
                                                      : stderr,
                   .file = file.empty() ? "" : file + ".out"};
    request.err = {.prefix = prefix, .console = shown ? stderr : nullptr, .file = file.empty() ? "" : file + ".err"};
  }
  processes_.emplace_back(request);
  if (options_.announce) std::fprintf(stderr, "rank %d: pid %d\n", place.rank, processes_.back().pid());
}

// Output of a rank that has ended is read to what is there; a process that keeps the pipe open does not hold us up.
bool RankTeam::is_running() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const RankProcess& p) { return p.is_running(); });
}

void RankTeam::add_descriptors(std::vector<pollfd>& fds) const {
  for (const RankProcess& process : processes_) {
    for (const int fd : {process.exit_fd(), process.out_fd(), process.err_fd()})
      fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
}

std::vector<LaunchFailure> RankTeam::look() {
  std::vector<LaunchFailure> failures;
  for (RankProcess& process : processes_) process.forward_output();
  for (RankProcess& process : processes_) {
    if (!process.is_running() || !process.reap()) continue;
    process.forward_output();
    judge(process, failures);
  }
  if (!failures.empty()) begin_the_end();
  if (job_) regroup(failures);
  end_when_due();
  return failures;
}

// Whether nothing is lost with a rank that has failed: the others go on without one that a signal has ended, and
// without a replacement that has not joined them yet, which nobody waits for; and when all have done their work, none
// is missed.
bool RankTeam::is_survived(const RankProcess& process) {
  const int status = process.wait_status();
  if (!job_ || end_signals_ > 0 || ending_ != Ending::none) return false;
  const bool is_lost = WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT;
  const int left = static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [](const RankProcess& p) { return p.is_running(); }));
  const bool is_missed_by_none = has_finished_ && job_->is_done();
  if (is_lost ? left == 0 && !is_missed_by_none && restarts_left_ <= static_cast<int>(lost_.size())
              : is_ready(process) || (left == 0 && !has_finished_))
    return false;
  const std::string others = left > 0 ? fmt::format("{} rank{} on without it", left, left == 1 ? " goes" : "s go")
                             : has_finished_ ? "the others have done the work"
                                             : "no other rank is left";
  std::fprintf(stderr, "tutti: %s%s; %s\n", describe_exit(process.rank(), process.pid(), status, where_).c_str(),
               is_lost ? "" : " before it had joined the others", others.c_str());
  for (const std::string& line : process.last_lines()) std::fprintf(stderr, "    %s\n", line.c_str());
  if (!is_lost) return true;
  const int local = process.rank() - first_.rank;
  job_->note_death({.seat = local, .pid = process.pid()}, WTERMSIG(status));
  lost_.push_back(local);
  return true;
}

bool RankTeam::is_ready(const RankProcess& process) const {
  return std::find(ready_.begin(), ready_.end(), process.pid()) != ready_.end();
}

// The others need no replacement, so they go on whatever keeps it from starting.
void RankTeam::start_replacement(int local) {
  --restarts_left_;
  ++replacements_;
  const int restart = first_.restart + replacements_, rank = first_.rank + local;
  std::fprintf(stderr, "tutti: starting rank %d again: restart %d of %d\n", rank, restart, options_.max_restarts);
  job_->expect_replacement(local);
  try {
    start(local, restart);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti: rank %d is not started again: %s; the other ranks go on without it\n", rank,
                 error.what());
  }
}

// The ranks that work together, by their numbers.
void RankTeam::publish() {
  std::vector<TeamMember> team;
  for (const RankProcess& process : processes_) {
    if (process.is_running() && is_ready(process))
      team.push_back({.seat = process.rank() - first_.rank, .pid = process.pid()});
  }
  std::sort(team.begin(), team.end(), [](const TeamMember& a, const TeamMember& b) { return a.seat < b.seat; });
  job_->publish_team(team);
}

void RankTeam::regroup(std::vector<LaunchFailure>& failures) {
  if (ending_ != Ending::none || end_signals_ > 0) return;
  // A replacement that has just joined does not wait for those who have ended.
  bool is_other = std::exchange(has_left_, false) || !lost_.empty(), works = false;
  const std::vector<int> lost = std::exchange(lost_, {});
  for (const int local : lost) {
    if (restarts_left_ == 0 || job_->is_done()) break;
    start_replacement(local);
  }
  for (const RankProcess& process : processes_) {
    if (!process.is_running()) continue;
    const bool was_ready = is_ready(process);
    works = works || was_ready;
    // Not by its pid: a program between launcher and rank, such as a shell, has that.
    if (was_ready || !job_->is_ready(process.rank() - first_.rank)) continue;
    ready_.push_back(process.pid());
    is_other = works = true;
  }
  if (is_other) publish();
  if (!lost.empty() && !is_running() && !has_finished_) {
    failures.push_back({.kind = LaunchFailure::Kind::killed,
                        .status = 1,
                        .text = "all ranks were lost, and none could be started again",
                        .last_lines = {}});
  }
  // Whoever worked has ended well: a replacement that still begins has nothing to join.
  if (has_finished_ && !works) job_->end_job();
}

std::optional<RankTeam::Clock::time_point> RankTeam::next_act() const {
  const bool begins = job_ && std::any_of(processes_.begin(), processes_.end(),
                                          [&](const RankProcess& p) { return p.is_running() && !is_ready(p); });
  const Clock::time_point soon = begins ? Clock::now() + kLookForReady : stopped_.next_look();
  return act_at_ ? std::min(*act_at_, soon) : soon;
}

std::vector<std::string> RankTeam::look_for_stopped() {
  std::vector<StoppedRanks::Rank> running;
  for (const RankProcess& process : processes_) {
    if (process.is_running()) running.push_back({.rank = process.rank(), .pid = process.pid()});
  }
  return stopped_.look(running);
}

void RankTeam::judge(const RankProcess& process, std::vector<LaunchFailure>& failures) {
  const int status = process.wait_status();
  const bool killed = WIFSIGNALED(status);
  if (!killed && WEXITSTATUS(status) == 0) {
    has_finished_ = has_left_ = true;
    return;
  }
  if (is_survived(process)) return;
  const int number = killed ? WTERMSIG(status) : 0;
  const bool by_us = killed && ((ending_ >= Ending::terminating && number == SIGTERM) ||
                                (ending_ == Ending::killing && number == SIGKILL));
  // A shell reports a signal of its child as 128 + n.
  // The second signal means "now": a rank that leaves at once makes the others fail in their collectives.
  const bool asked = end_signals_ > 0 && (killed ? by_us || asks_for_the_end(number)
                                                 : end_signals_ > 1 || asks_for_the_end(WEXITSTATUS(status) - 128));
  was_interrupted_ |= asked;
  if (asked || by_us) return;
  const bool is_cause = killed && number != SIGABRT && ending_ < Ending::terminating;
  const std::deque<std::string> lines = process.last_lines();
  failures.push_back({.kind = is_cause ? LaunchFailure::Kind::killed : LaunchFailure::Kind::ended,
                      .status = killed ? 128 + number : WEXITSTATUS(status),
                      .text = describe_exit(process.rank(), process.pid(), status, where_),
                      .last_lines = {lines.begin(), lines.end()}});
}

void RankTeam::pass_on(int number) {
  if (!asks_for_the_end(number)) {
    for (const RankProcess& process : processes_) process.signal(number);
    return;
  }
  if (++end_signals_ >= 3) return kill_all();
  for (const RankProcess& process : processes_) process.signal_group(number);
}

void RankTeam::begin_the_end() {
  if (ending_ != Ending::none) return;
  ending_ = Ending::noticing;
  act_at_ = Clock::now() + options_.notice;
}

// Not at once: a rank that meets the others finds out by itself, and is still to say what it knows.
void RankTeam::end_when_due() {
  if (!act_at_ || Clock::now() < *act_at_) return;
  if (ending_ == Ending::killing) return go_without_the_killed();
  if (ending_ == Ending::terminating) return kill_all();
  ending_ = Ending::terminating;
  act_at_ = Clock::now() + options_.grace;
  for (const RankProcess& process : processes_) process.signal_group(SIGTERM);
}

void RankTeam::kill_all() {
  if (ending_ != Ending::killing) act_at_ = Clock::now() + options_.unkillable_after;
  ending_ = Ending::killing;
  for (const RankProcess& process : processes_) process.signal_group(SIGKILL);
}

void RankTeam::go_without_the_killed() {
  act_at_.reset();
  for (RankProcess& process : processes_) {
    if (!process.is_running()) continue;
    std::fprintf(stderr,
                 "tutti: rank %d (pid %d)%s has not ended within %.1f s of SIGKILL, and the launcher ends without it; "
                 "'cat /proc/%d/stack' there shows what it waits for, such as a file server "
                 "that does not answer\n",
                 process.rank(), process.pid(), where_.c_str(),
                 static_cast<double>(options_.unkillable_after.count()) / 1000, process.pid());
    was_interrupted_ |= end_signals_ > 0;
    process.abandon();
  }
}

}  // namespace tutti::comm
