#include "tutti/train/survival/survivors.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/job/errors.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/rendezvous/rendezvous.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/signals.h"
#include "tutti/train/survival/survival_rules.h"
#include "tutti/train/survival/team_store.h"

namespace tutti::train {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookForTeam = 2ms;
constexpr auto kJoinTimeout = 10min;
// How long the launcher has to say that a rank is lost: where one is, and where an error may have another cause.
constexpr auto kCertainLoss = 30s, kPossibleLoss = 2s;

// Nobody else says who goes on.
void check_launcher() {
  TUTTI_CHECK_ENV(!comm::launcher_has_ended(),
                  "the launcher of these ranks (pid {}) has ended, and only it can say which ranks go on; the same "
                  "command goes on from the last checkpoint",
                  std::getenv("TUTTI_LAUNCHER_PID"));
}

// The team in which this process is the rank of its seat; null: the run is over, or is to stop.
std::unique_ptr<Survivors> join_team(const std::shared_ptr<comm::JobFile>& job, int seat, const StopSignals& signals) {
  const auto deadline = std::chrono::steady_clock::now() + kJoinTimeout;
  const comm::TeamMember me{.seat = seat, .pid = getpid()};
  job->set_ready(seat, me.pid);
  while (!job->has_ended()) {
    auto team = std::make_unique<Survivors>();
    team->job = job;
    team->team = job->team();
    team->members = job->members(team->team);
    // A program between launcher and rank, such as a shell, has the pid; the seat is the rank's in any case.
    const auto it = std::find_if(team->members.begin(), team->members.end(),
                                 [&](const comm::TeamMember& m) { return m.seat == seat; });
    if (it != team->members.end()) {
      team->rank = static_cast<int>(it - team->members.begin());
      std::vector<pid_t> pids;
      for (const comm::TeamMember& m : team->members) pids.push_back(m.pid);
      team->liveness = std::make_unique<comm::Liveness>(std::move(pids));
      return team;
    }
    if (signals.requested()) return nullptr;
    check_launcher();
    TUTTI_CHECK_ENV(std::chrono::steady_clock::now() < deadline,
                    "the launcher gave this rank no team within {} minutes",
                    std::chrono::minutes(kJoinTimeout).count());
    std::this_thread::sleep_for(kLookForTeam);
  }
  return nullptr;
}

// Whether the launcher says, within the time, that the team is over. EnvironmentError when it can no longer say so.
bool is_soon_replaced(const Survivors& team, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!team.is_replaced()) {
    check_launcher();
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLookForTeam);
  }
  return true;
}

TrainerResult train_in_team(const Config& config, TrainerOptions options, const SurvivorPlace& place, Survivors& team,
                            const std::shared_ptr<comm::Store>& store) {
  const int ranks = static_cast<int>(team.members.size());
  RankContext context({.rank = team.rank, .world_size = ranks, .threads = place.threads});
  const RankContext::Scope scope(context);
  const auto meeting =
      std::make_shared<TeamStore>(fmt::format("team/{}", team.team), store, [&team] { return team.is_replaced(); });
  const auto group =
      comm::init_process_group({.store = meeting,
                                .rank = team.rank,
                                .world_size = ranks,
                                .group = {.name = "0", .description = "all ranks", .transport = place.transport}});
  TUTTI_CHECK(ranks == 1 || group->backend(DeviceKind::cpu).name() == "shm",
              "training.survive_rank_loss needs ranks that share the memory of one host, and these exchange data by "
              "{}; set it to false, and start with --max-restarts=N: then all "
              "ranks go on from the last checkpoint",
              group->backend(DeviceKind::cpu).name());
  options.group = group.get();
  options.survivors = &team;
  Config own = config;
  own.parallelism = layout_of_survivors(config.parallelism, team.job->seats(), ranks);
  return train(own, options);
}

}  // namespace

bool Survivors::has_lost_one() const {
  if (liveness->find_dead() >= 0) return true;
  if (!is_replaced()) return false;
  const std::vector<comm::TeamMember> newest = job->members(job->team());
  return std::any_of(members.begin(), members.end(), [&](const comm::TeamMember& m) {
    return std::find(newest.begin(), newest.end(), m) == newest.end();
  });
}

TrainerResult train_with_survivors(const Config& config, const TrainerOptions& options, const SurvivorPlace& place) {
  const std::shared_ptr<comm::JobFile> job = comm::JobFile::inherited();
  TUTTI_CHECK(job != nullptr,
              "training.survive_rank_loss: the launcher of these ranks ends them all when one is lost, and keeps no "
              "memory for them. Start with tutti train -n N, or tutti launch "
              "--survive-rank-loss; or set training.survive_rank_loss to false, and let the launcher start all ranks "
              "again (--max-restarts=N): they go on from the last checkpoint");
  const std::shared_ptr<comm::Store> store = comm::rendezvous().store;
  const StopSignals signals;  // a signal between two teams is heard by the next one
  while (true) {
    const std::unique_ptr<Survivors> team = join_team(job, place.seat, signals);
    if (team == nullptr) return {.interrupted = signals.requested()};
    try {
      return train_in_team(config, options, place, *team, store);
    } catch (const Error& error) {
      // An error that a death has caused on this rank is not always one that says so.
      const bool is_loss = dynamic_cast<const comm::PeerError*>(&error) != nullptr ||
                           dynamic_cast<const TeamIsOver*>(&error) != nullptr || team->has_lost_one() ||
                           team->is_replaced();
      if (!is_soon_replaced(*team, is_loss ? kCertainLoss : kPossibleLoss)) throw;
    }
  }
}

}  // namespace tutti::train
