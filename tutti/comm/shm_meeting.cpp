#include "tutti/comm/shm_meeting.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Clock = std::chrono::steady_clock;

// A sleeper looks around this often: a dead peer is named well within a second.
constexpr std::chrono::milliseconds kLookAround{50};
// About 20 microseconds: longer than a peer on another core needs to arrive when the work is balanced.
constexpr int kSpins = 500;

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::milliseconds limit) {
  const timespec time{.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ShmMeeting::ShmMeeting(std::shared_ptr<ShmSegment> segment, int rank, std::chrono::milliseconds timeout)
    : segment_(std::move(segment)),
      header_(segment_->header()),
      rank_(rank),
      world_size_(segment_->world_size()),
      timeout_(timeout),
      meetings_(header_.generation.load(std::memory_order_acquire)),
      // With fewer cores than ranks, the peer we wait for may need the very core we would spin on.
      spins_(world_size_ <= usable_cores() ? kSpins : 0),
      pidfds_(static_cast<size_t>(world_size_), -1) {
  TUTTI_CHECK(rank >= 0 && rank < world_size_, "rank {} of a group of {}", rank, world_size_);
  segment_->announce(rank, getpid());
  header_.ranks[rank].presence.store(ShmPresence::kPresent, std::memory_order_release);
}

ShmMeeting::~ShmMeeting() {
  header_.ranks[rank_].presence.store(ShmPresence::kLeft, std::memory_order_release);
  futex_wake_all(header_.generation);
  for (const int fd : pidfds_) {
    if (fd >= 0) close(fd);
  }
}

void ShmMeeting::wait_for_all(std::string_view what) {
  throw_if_failed();
  const uint32_t meeting = ++meetings_;
  header_.ranks[rank_].arrived.store(meeting, std::memory_order_release);
  const bool last = header_.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(world_size_);
  if (last) {
    header_.arrivals.store(0, std::memory_order_relaxed);
    header_.generation.store(meeting, std::memory_order_release);
    if (world_size_ > 1) futex_wake_all(header_.generation);
  } else if (!spin_for(meeting)) {
    sleep_for(meeting, what);
  }
}

bool ShmMeeting::spin_for(uint32_t meeting) const {
  for (int i = 0; i < spins_; ++i) {
    if (header_.generation.load(std::memory_order_acquire) == meeting) return true;
    __builtin_ia32_pause();
  }
  sched_yield();
  return header_.generation.load(std::memory_order_acquire) == meeting;
}

void ShmMeeting::sleep_for(uint32_t meeting, std::string_view what) {
  const auto deadline = Clock::now() + timeout_;
  const auto met = [&] { return header_.generation.load(std::memory_order_acquire) == meeting; };
  while (!met()) {
    futex_wait(header_.generation, meeting - 1, kLookAround);
    if (met()) return;
    throw_if_failed();
    std::string problem = find_missing(meeting, what);
    if (problem.empty() && Clock::now() >= deadline) {
      std::string late;
      for (int r = 0; r < world_size_; ++r) {
        if (header_.ranks[r].arrived.load(std::memory_order_acquire) != meeting) late += fmt::format(" {}", r);
      }
      problem = fmt::format(
          "{}: not all ranks arrived within {} s; missing:{}. They may hang, or be slower than the "
          "timeout allows",
          what, static_cast<double>(timeout_.count()) / 1000, late);
    }
    // A peer that came and then went did come: look once more before judging.
    if (problem.empty() || met()) continue;
    fail(problem);
    throw_if_failed();
  }
}

std::string ShmMeeting::find_missing(uint32_t meeting, std::string_view what) {
  for (int r = 0; r < world_size_; ++r) {
    const ShmRankBlock& peer = header_.ranks[r];
    // Read before `arrived`: a peer that came and left after this line is not missing.
    const bool left = peer.presence.load(std::memory_order_acquire) == ShmPresence::kLeft;
    const bool dead = !left && is_dead(r);
    if (peer.arrived.load(std::memory_order_acquire) == meeting || !(left || dead)) continue;
    return fmt::format("rank {} (pid {}) {} {}; rank {} was waiting for it", r, peer.pid.load(),
                       dead ? "died before it came to" : "left its group without", what, rank_);
  }
  return "";
}

bool ShmMeeting::is_dead(int rank) {
  const pid_t pid = header_.ranks[rank].pid.load(std::memory_order_acquire);
  if (pid == 0 || pid == getpid()) return false;
  int& fd = pidfds_[rank];
  if (fd < 0) {
    fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return errno == ESRCH;
  }
  pollfd peer{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&peer, 1, 0) == 1;
}

void ShmMeeting::fail(std::string_view reason) {
  uint32_t none = 0;
  if (header_.failure.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    const size_t length = std::min(reason.size(), sizeof header_.failure_text - 1);
    std::memcpy(header_.failure_text, reason.data(), length);
    header_.failure_text[length] = '\0';
    header_.failure.store(2, std::memory_order_release);
  }
  futex_wake_all(header_.generation);
}

void ShmMeeting::throw_if_failed() const {
  const uint32_t failure = header_.failure.load(std::memory_order_acquire);
  if (failure == 0) return;
  // State 1 lasts for one memcpy, unless its writer died in it.
  throw EnvironmentError(failure == 2 ? header_.failure_text : "another rank failed");
}

}  // namespace tutti::comm
