#include "tutti/symm/signal_pad.h"

#include <sched.h>

#include <algorithm>

#include "tutti/job/errors.h"
#include "tutti/runtime/futex.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/exchange_meter.h"

namespace tutti::comm::symm {
namespace {

using std::chrono::steady_clock;

// A sleeper looks this often whether its peers are alive.
constexpr std::chrono::microseconds kLongestNap{50'000};
// About 10 microseconds, what a peer on another core needs when the work is balanced.
constexpr int kSpins = 250;
// Then, or at once with fewer cores than ranks, a peer that needs this very core gets it, for so long. A yield takes a
// microsecond, but much longer when other programs compete for the core.
constexpr std::chrono::microseconds kYielding{30};

// Counts this waiter among the sleepers of its pad while it lives.
class Sleeper {
 public:
  explicit Sleeper(PadHeader& header) : header_(header) { header_.sleepers.fetch_add(1, std::memory_order_seq_cst); }
  ~Sleeper() { header_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  PadHeader& header_;
};

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return text;
}

}  // namespace

SignalPads::SignalPads(std::vector<std::byte*> pads, int64_t slot_bytes, int rank, std::string title,
                       std::vector<pid_t> pids)
    : pads_(std::move(pads)),
      slot_bytes_(slot_bytes),
      rank_(rank),
      ranks_(static_cast<int>(pads_.size())),
      channels_(static_cast<int>(std::min<int64_t>(channels_of_pad(slot_bytes, ranks_), 1 << 20))),
      most_threads_(usable_cores() / ranks_),
      title_(std::move(title)),
      liveness_(std::move(pids)),
      unfinished_(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(channels_))) {
  header(rank_).presence.store(PadPresence::present, std::memory_order_release);
}

SignalPads::~SignalPads() {
  if (!tells_ || process_.is_in_child()) return;
  header(rank_).presence.store(PadPresence::left, std::memory_order_seq_cst);
  for (int r = 0; r < ranks_; ++r) ring(r);
}

SignalSlot& SignalPads::slot(int owner, int channel, int source) const {
  return reinterpret_cast<SignalSlot*>(slots(owner))[static_cast<int64_t>(channel) * ranks_ + source];
}

void SignalPads::check_channel(std::string_view call, int channel) const {
  process_.check(title_);
  TUTTI_CHECK(channel >= 0 && channel < channels_,
              "{}: {}: channel {}; the largest legal channel is {} ({} bytes of pad)", title_, call, channel,
              channels_ - 1, slot_bytes_);
}

void SignalPads::check_peer(std::string_view call, int peer) const {
  TUTTI_CHECK(peer >= 0 && peer < ranks_, "{}: {}: rank {}; ranks are 0 to {}", title_, call, peer, ranks_ - 1);
}

void SignalPads::ring(int rank) {
  PadHeader& pad = header(rank);
  // A sleeper counts itself first and looks at its condition afterwards; here the condition was changed first. All four
  // accesses are sequentially consistent, so one of the two sees the other.
  if (pad.sleepers.load(std::memory_order_seq_cst) == 0) return;
  pad.doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(pad.doorbell);
}

std::string SignalPads::on_channel(std::string_view call, int channel) const {
  return fmt::format("{} on channel {}", call, channel);
}

void SignalPads::wait(FunctionRef<std::string()> what, Moment deadline, FunctionRef<bool()> is_met,
                      FunctionRef<std::vector<int>()> culprits) {
  const ExchangeSpan span;
  const int spins = RankContext::current().live_threads() <= most_threads_ ? kSpins : 0;
  for (int i = 0; i < spins; ++i) {
    if (is_met()) return;
    __builtin_ia32_pause();
  }
  const auto started = steady_clock::now();
  while (steady_clock::now() - started < kYielding) {
    if (is_met()) return;
    sched_yield();
  }
  PadHeader& own = header(rank_);
  const Sleeper sleeper(own);
  while (true) {
    const uint32_t rung = own.doorbell.load(std::memory_order_seq_cst);
    if (is_met()) return;
    const auto now = steady_clock::now();
    const std::vector<int> missing = culprits();
    for (const int r : missing) {
      if (r == rank_) continue;
      const bool left = header(r).presence.load(std::memory_order_acquire) == PadPresence::left;
      if (!left && !liveness_.is_dead(r)) continue;
      if (is_met()) return;  // it did what it had to before it went
      throw PeerError(fmt::format("{}: {}: rank {} (pid {}) {}", title_, what(), r, liveness_.pid(r),
                                  left ? "has left the group" : "died"));
    }
    if (now >= deadline) {
      throw TimeoutError(fmt::format("{}: {}: waited {:.3f} s in vain for ranks {}", title_, what(),
                                     std::chrono::duration<double>(now - started).count(), list(missing)));
    }
    const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - now);
    futex_wait(own.doorbell, rung, std::min(left, kLongestNap));
  }
}

void SignalPads::barrier(int channel, Moment deadline) {
  check_channel("barrier", channel);
  if (ranks_ == 1) return;
  // 1. Tell every rank, in its pad, which barrier this rank has come to.
  const uint64_t before = slot(rank_, channel, rank_).barrier.load(std::memory_order_relaxed);
  std::atomic<bool>& unfinished = unfinished_[static_cast<size_t>(channel)];
  const bool resumes = unfinished.exchange(false);
  const uint64_t turn = resumes ? before : before + 1;
  if (!resumes) {
    for (int r = 0; r < ranks_; ++r) slot(r, channel, rank_).barrier.store(turn, std::memory_order_seq_cst);
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_) ring(r);
    }
  }
  // 2. Wait until every rank has told the same in the own pad.
  const auto has_come = [&](int r) { return slot(rank_, channel, r).barrier.load(std::memory_order_seq_cst) >= turn; };
  const auto is_met = [&] {
    for (int r = 0; r < ranks_; ++r) {
      if (!has_come(r)) return false;
    }
    return true;
  };
  const auto culprits = [&] {
    std::vector<int> late;
    for (int r = 0; r < ranks_; ++r) {
      if (!has_come(r)) late.push_back(r);
    }
    return late;
  };
  try {
    wait([&] { return on_channel("barrier", channel); }, deadline, is_met, culprits);
  } catch (const TimeoutError&) {
    unfinished = true;
    throw;
  }
}

void SignalPads::put_signal(int peer, int channel, Moment deadline) {
  check_peer("put_signal", peer);
  check_channel("put_signal", channel);
  SignalSlot& there = slot(peer, channel, rank_);
  const uint64_t sent = there.put.load(std::memory_order_relaxed);
  wait([&] { return on_channel("put_signal", channel); }, deadline,
       [&] { return there.consumed.load(std::memory_order_seq_cst) == sent; }, [&] { return std::vector<int>{peer}; });
  there.put.store(sent + 1, std::memory_order_seq_cst);
  ring(peer);
}

void SignalPads::wait_signal(int peer, int channel, Moment deadline) {
  check_peer("wait_signal", peer);
  check_channel("wait_signal", channel);
  SignalSlot& here = slot(rank_, channel, peer);
  const uint64_t taken = here.consumed.load(std::memory_order_relaxed);
  wait([&] { return on_channel("wait_signal", channel); }, deadline,
       [&] { return here.put.load(std::memory_order_seq_cst) > taken; }, [&] { return std::vector<int>{peer}; });
  here.consumed.store(taken + 1, std::memory_order_seq_cst);
  ring(peer);
}

void SignalPads::add(int peer, uint64_t amount, int channel) {
  check_peer("signal_add", peer);
  check_channel("signal_add", channel);
  slot(peer, channel, rank_).counter.fetch_add(amount, std::memory_order_seq_cst);
  ring(peer);
}

uint64_t SignalPads::value(int peer, int channel) const {
  check_peer("signal_value", peer);
  check_channel("signal_value", channel);
  return slot(rank_, channel, peer).counter.load(std::memory_order_seq_cst);
}

uint64_t SignalPads::wait_until(int peer, uint64_t least, int channel, Moment deadline) {
  check_peer("wait_until", peer);
  check_channel("wait_until", channel);
  wait([&] { return on_channel("wait_until", channel); }, deadline, [&] { return value(peer, channel) >= least; },
       [&] { return std::vector<int>{peer}; });
  return value(peer, channel);
}

}  // namespace tutti::comm::symm
