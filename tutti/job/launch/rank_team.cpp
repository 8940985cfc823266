#include "tutti/job/launch/rank_team.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/job/launch/launch_signals.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {
namespace {

// This process's environment without what another launcher, or the user for this one, has put there for the ranks.
std::vector<std::string> environment_with(const std::vector<std::string>& extra) {
  std::vector<std::string> result;
  const auto name_of = [](const std::string& variable) { return variable.substr(0, variable.find('=') + 1); };
  const bool has_key = std::any_of(extra.begin(), extra.end(), [](const std::string& e) { return e.starts_with("TUTTI_JOB_KEY="); });
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const bool replaced = (has_key && text.starts_with("TUTTI_JOB_KEY_FILE=")) ||
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
  TUTTI_CHECK_ENV(!error, "cannot make the folder {} for the output of the ranks: {}", folder.string(), error.message());
  return folder.string();
}

}  // namespace

RankTeam::RankTeam(const LaunchOptions& options, const LaunchedRank& first, const std::string& where, const sigset_t& mask)
    : options_(options), where_(where) {
  const std::string folder = make_log_folder(options, first.restart);
  const bool shown = folder.empty() || options.tee;
  for (int local = 0; local < options.ranks; ++local) {
    LaunchedRank place = first;
    place.rank += local;
    place.local_rank = local;
    std::vector<std::string> extra = options.environment;
    for (std::string& variable : rank_variables(place)) extra.push_back(std::move(variable));
    for (std::string& variable : rank_defaults(options.ranks, usable_cores(), [](const char* name) { return std::getenv(name) != nullptr; })) {
      const std::string name = variable.substr(0, variable.find('=') + 1);
      const bool chosen = std::any_of(extra.begin(), extra.end(), [&](const std::string& e) { return e.starts_with(name); });
      if (!chosen) extra.push_back(std::move(variable));
    }
    SpawnRequest request{.rank = place.rank, .program = options.program, .argv = options.argv, .environment = environment_with(extra), .signal_mask = mask};
    if (options.all_prefixed || place.rank != 0) {
      const std::string prefix = fmt::format("[rank {}] ", place.rank), file = folder.empty() ? "" : fmt::format("{}/rank{}", folder, place.rank);
      request.out = {.prefix = prefix, .console = !shown ? nullptr : options.all_prefixed ? stdout : stderr, .file = file.empty() ? "" : file + ".out"};
      request.err = {.prefix = prefix, .console = shown ? stderr : nullptr, .file = file.empty() ? "" : file + ".err"};
    }
    processes_.emplace_back(request);
    if (options.announce) std::fprintf(stderr, "rank %d: pid %d\n", place.rank, processes_.back().pid());
  }
}

// Output of a rank that has ended is read to what is there; a process that keeps the pipe open does not hold us up.
bool RankTeam::is_running() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const RankProcess& p) { return p.is_running(); });
}

void RankTeam::add_descriptors(std::vector<pollfd>& fds) const {
  for (const RankProcess& process : processes_) {
    for (const int fd : {process.exit_fd(), process.out_fd(), process.err_fd()}) fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
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
  end_when_due();
  return failures;
}

void RankTeam::judge(const RankProcess& process, std::vector<LaunchFailure>& failures) {
  const int status = process.wait_status();
  const bool killed = WIFSIGNALED(status);
  if (!killed && WEXITSTATUS(status) == 0) return;
  const int number = killed ? WTERMSIG(status) : 0;
  const bool by_us = killed && ((ending_ >= Ending::terminating && number == SIGTERM) || (ending_ == Ending::killing && number == SIGKILL));
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
  if (++end_signals_ >= 3) ending_ = Ending::killing;
  for (const RankProcess& process : processes_) process.signal_group(end_signals_ >= 3 ? SIGKILL : number);
}

void RankTeam::begin_the_end() {
  if (ending_ != Ending::none) return;
  ending_ = Ending::noticing;
  act_at_ = Clock::now() + options_.notice;
}

// Not at once: a rank that meets the others finds out by itself, and is still to say what it knows.
void RankTeam::end_when_due() {
  if (!act_at_ || Clock::now() < *act_at_) return;
  const bool was_noticing = ending_ == Ending::noticing;
  ending_ = was_noticing ? Ending::terminating : Ending::killing;
  act_at_.reset();
  if (was_noticing) act_at_ = Clock::now() + options_.grace;
  for (const RankProcess& process : processes_) process.signal_group(was_noticing ? SIGTERM : SIGKILL);
}

}  // namespace tutti::comm
