#include "tutti/comm/shm/shm_watch.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/core/error.h"
#include "tutti/runtime/futex.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

// A sleeper looks around this often: a dead peer is named well within a second.
constexpr std::chrono::microseconds kLongestNap{50'000};
// About 20 microseconds: longer than a peer on another core needs to arrive when the work is balanced.
constexpr uint32_t kSpins = 256;
// With more ranks, or threads of theirs, than cores the peer needs this very core. A yield is a microsecond; a sleep
// and its wake-up are 20.
constexpr uint32_t kYields = 200;

// A peer that answers at all does so within so many spins, unless it stands behind us on this core.
constexpr uint32_t kLookAtCore = 64;

}  // namespace

ShmWatch::ShmWatch(std::shared_ptr<Segment> segment, int rank, bool one_address_space, int local_ranks,
                   std::vector<int> shown_ranks, std::vector<int> world_ranks)
    : segment_(std::move(segment)),
      header_(segment_->header()),
      rank_(rank),
      size_(segment_->world_size()),
      one_address_space_(one_address_space),
      shown_ranks_(std::move(shown_ranks)),
      world_ranks_(std::move(world_ranks)),
      most_threads_(usable_cores() / std::max(local_ranks, size_)),
      pidfds_(static_cast<size_t>(size_), -1) {
  TUTTI_CHECK(rank >= 0 && rank < size_, "rank {} of a group of {}", rank, size_);
  segment_->area(rank).pid.store(getpid(), std::memory_order_release);
  segment_->area(rank).presence.store(Presence::present, std::memory_order_release);
}

// A rank that spins takes a core from the threads with which the others compute what it waits for, if they are more
// than the cores.
void ShmWatch::begin_wait() {
  const bool has_core = RankContext::current().live_threads() <= most_threads_;
  spins_ = has_core ? kSpins : 0;
  yields_ = has_core ? 4 : kYields;
}

ShmWatch::~ShmWatch() {
  segment_->area(rank_).presence.store(Presence::left, std::memory_order_release);
  wake_peers();
  for (const int fd : pidfds_) {
    if (fd >= 0) close(fd);
  }
}

PeerIdentity ShmWatch::peer(int rank) const {
  static const std::string host = host_name();
  return {.pid = segment_->area(rank).pid.load(std::memory_order_acquire),
          .host = host,
          .world_rank = world_ranks_.empty() ? -1 : world_ranks_[static_cast<size_t>(rank)]};
}

void ShmWatch::wake_peers() {
  // Pairs with the fence in pause(): either we see the sleeper, or it sees what we published.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header_.sleepers.load(std::memory_order_relaxed) == 0) return;
  for (int p = 0; p < size_; ++p) {
    RankArea& area = segment_->area(p);
    if (p == rank_ || area.asleep.load(std::memory_order_relaxed) == 0) continue;
    area.doorbell.fetch_add(1, std::memory_order_release);
    futex_wake_all(area.doorbell);
  }
}

bool ShmWatch::pause(uint32_t attempt, uint32_t patience, std::chrono::microseconds limit, FunctionRef<bool()> has_news,
                     FunctionRef<bool()> waits_for_own_core) {
  if (attempt % kLookAtCore == 0) yields_at_once_ = attempt > 0 && waits_for_own_core();
  if (spins(attempt, patience)) {
    __builtin_ia32_pause();
    return false;
  }
  if (attempt < spins_ * patience + yields_) {
    sched_yield();
    return false;
  }
  RankArea& own = segment_->area(rank_);
  const uint32_t bell = own.doorbell.load(std::memory_order_acquire);
  own.asleep.store(1, std::memory_order_relaxed);
  header_.sleepers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!has_news()) futex_wait(own.doorbell, bell, std::min(limit, kLongestNap));
  header_.sleepers.fetch_sub(1, std::memory_order_relaxed);
  own.asleep.store(0, std::memory_order_relaxed);
  return true;
}

std::string ShmWatch::why_gone(int rank) {
  if (has_left(rank)) return fmt::format("{} left the group", describe(shown(rank), peer(rank)));
  if (is_dead(rank)) return fmt::format("{} died (its process is gone)", describe(shown(rank), peer(rank)));
  return "";
}

bool ShmWatch::is_dead(int rank) {
  if (one_address_space_) return false;
  const pid_t pid = segment_->area(rank).pid.load(std::memory_order_acquire);
  if (pid == 0) return false;  // not started yet, as far as we know
  int& fd = pidfds_[static_cast<size_t>(rank)];
  if (fd < 0) fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd request{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&request, 1, 0) > 0;
}

}  // namespace tutti::comm
