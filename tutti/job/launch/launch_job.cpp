#include "tutti/job/launch/launch_job.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/job/host/job_file.h"
#include "tutti/job/launch/failure.h"
#include "tutti/job/launch/group_keeper.h"
#include "tutti/job/launch/launch_signals.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/node_meeting.h"
#include "tutti/job/launch/node_news.h"
#include "tutti/job/launch/rank_team.h"
#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kInterruptedStatus = 130;

// What became of one attempt to run all ranks.
struct Outcome {
  std::vector<LaunchFailure> failures;
  bool interrupted = false;  // ranks ended because of a signal
  int signals = 0;           // that asked for the end, anywhere
  int lost = 0;              // nodes
  int replacements = 0;      // of single ranks, which count as restarts
  bool cut_off = false;      // from node 0
};

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options) {
    if (!options.nodes.host.empty()) meeting_ = std::make_unique<NodeMeeting>(options);
  }

  int run() {
    int nodes = options_.nodes.max_nodes;
    TUTTI_CHECK(
        !options_.survive_rank_loss || !meeting_,
        "ranks that outlive one of them are on one host; leave out the other nodes, or --survive-rank-loss: then "
        "--max-restarts starts all ranks again, which go on from their last checkpoint");
    for (int restart = 0;; ++restart) {
      std::optional<Outcome> outcome = meeting_ ? run_with_others(restart, nodes) : run_alone(restart);
      if (!outcome) return kInterruptedStatus;
      LaunchFailure* cause = cause_of(outcome->failures);
      if (cause) print_failure(*cause);
      const bool enough_nodes = nodes - outcome->lost >= options_.nodes.min_nodes && !outcome->cut_off;
      if (!cause || outcome->signals > 0 || restart + outcome->replacements >= options_.max_restarts || !enough_nodes) {
        if (meeting_ && !outcome->cut_off) meeting_->leave(nodes - outcome->lost - 1);
        return cause ? cause->status : outcome->interrupted ? kInterruptedStatus : 0;
      }
      nodes -= outcome->lost;
      restart += outcome->replacements;
      std::fprintf(stderr, "starting all ranks again: restart %d of %d\n", restart + 1, options_.max_restarts);
    }
  }

 private:
  Outcome run_alone(int restart) {
    const std::string key = make_job_key();
    const TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = key});  // where the ranks find each other
    const LaunchedRank first{.world_size = options_.ranks,
                             .local_world_size = options_.ranks,
                             .store_port = server.port(),
                             .master_port = find_free_port(),
                             .job_key = key,
                             .restart = restart,
                             .max_restarts = options_.max_restarts,
                             .run_id = options_.run_id.empty() ? "none" : options_.run_id};
    RankTeam team(options_, first, "", signals_.old_mask(), keeper_,
                  options_.survive_rank_loss ? JobFile::create(options_.ranks) : nullptr,
                  options_.max_restarts - restart);
    Outcome outcome;
    while (team.is_running()) {
      wait_for_event(&team, -1);
      while (const std::optional<int> number = signals_.take()) {
        outcome.signals += asks_for_the_end(*number);
        team.pass_on(*number);
      }
      for (LaunchFailure& failure : team.look()) outcome.failures.push_back(std::move(failure));
      for (const std::string& notice : team.look_for_stopped()) print_notice(notice);
    }
    outcome.interrupted = team.was_interrupted();
    outcome.replacements = team.replacements();
    return outcome;
  }

  // nullopt: a signal came while the nodes were meeting.
  std::optional<Outcome> run_with_others(int restart, int& nodes) {
    NodeMeeting::Plan plan;
    const auto keep_waiting = [this] {
      bool stop = false;
      while (const std::optional<int> number = signals_.take()) stop |= asks_for_the_end(*number);
      return !stop;
    };
    if (!meeting_->meet(restart, nodes, keep_waiting, plan)) return std::nullopt;
    nodes = static_cast<int>(plan.nodes.size());
    const int me = plan.first.node;
    NodeNews news(meeting_->connect(), plan, options_.nodes);
    std::optional<RankTeam> team;
    try {
      team.emplace(options_, plan.first, nodes > 1 ? text_of(plan.nodes[static_cast<size_t>(me)]) : "",
                   signals_.old_mask(), keeper_);
    } catch (const EnvironmentError& error) {
      const std::string where = text_of(plan.nodes[static_cast<size_t>(me)]);
      news.append({.kind = NewsItem::Kind::failure,
                   .node = me,
                   .failure = {.status = 1, .text = fmt::format("the launcher{}: {}", where, error.what())}});
    }
    Outcome outcome;
    std::vector<bool> ended(plan.nodes.size(), false);
    bool told_the_end = false;
    const auto is_over = [&] {
      // The fourth signal gives up waiting for other nodes.
      return std::all_of(ended.begin(), ended.end(), [](bool e) { return e; }) ||
             (told_the_end && (outcome.cut_off || outcome.signals > 3));
    };
    while (!is_over()) {
      wait_for_event(team ? &*team : nullptr, news.fd());
      while (const std::optional<int> number = signals_.take()) {
        outcome.signals += asks_for_the_end(*number);
        if (team) team->pass_on(*number);
        news.append({.kind = NewsItem::Kind::signal, .node = me, .number = *number});
      }
      for (NewsItem& item : news.take()) {
        if (item.kind == NewsItem::Kind::failure) {
          outcome.lost += item.failure.kind == LaunchFailure::Kind::lost;
          outcome.failures.push_back(std::move(item.failure));
          // Ranks that wait for that node end late, and have nothing to say that is nearer to the cause.
          if (outcome.failures.back().kind == LaunchFailure::Kind::lost) print_failure(outcome.failures.back());
          if (team) team->begin_the_end();
        } else if (item.kind == NewsItem::Kind::ended) {
          ended[static_cast<size_t>(item.node)] = true;
          outcome.interrupted |= item.interrupted;
        } else if (item.kind == NewsItem::Kind::notice) {
          print_notice(item.notice);
        } else if (item.node != me) {
          outcome.signals += asks_for_the_end(item.number);
          if (team) team->pass_on(item.number);
        }
      }
      if (team) {
        for (std::string& notice : team->look_for_stopped())
          news.append({.kind = NewsItem::Kind::notice, .node = me, .notice = std::move(notice)});
        for (LaunchFailure& failure : team->look())
          news.append({.kind = NewsItem::Kind::failure, .node = me, .failure = std::move(failure)});
      }
      outcome.cut_off = news.is_cut_off();
      if (!told_the_end && (!team || !team->is_running())) {
        told_the_end = true;
        news.append({.kind = NewsItem::Kind::ended, .node = me, .interrupted = team && team->was_interrupted()});
      }
    }
    return outcome;
  }

  void wait_for_event(const RankTeam* team, int other_fd) {
    std::vector<pollfd> fds{{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                            {.fd = other_fd, .events = POLLIN, .revents = 0}};
    int limit_ms = -1;
    if (team) {
      team->add_descriptors(fds);
      if (const auto moment = team->next_act()) {
        limit_ms = static_cast<int>(std::max<int64_t>(
            0, std::chrono::duration_cast<std::chrono::milliseconds>(*moment - Clock::now()).count() + 1));
      }
    }
    poll(fds.data(), fds.size(), limit_ms);
  }

  const LaunchOptions& options_;
  LaunchSignals signals_;
  const GroupKeeper keeper_;
  std::unique_ptr<NodeMeeting> meeting_;
};

}  // namespace

int launch_job(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace tutti::comm
