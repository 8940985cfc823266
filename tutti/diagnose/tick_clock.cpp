#include "tutti/diagnose/tick_clock.h"

#include <chrono>
#include <cmath>
#include <thread>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace tutti::comm {
namespace {

// Over this stretch the two clocks are read some 50 ns apart at worst: the rate is good to a few millionths.
constexpr uint64_t kBaselineNs = 10'000'000;

bool counter_runs_evenly() {
#ifdef __x86_64__
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;  // "invariant TSC"
#else
  return false;
#endif
}

}  // namespace

TickClock::TickClock() : counter_(counter_runs_evenly()), first_ticks_(now()), first_ns_(monotonic_ns()) {}

TickClock::Scale TickClock::scale() const {
  const uint64_t age = monotonic_ns() - first_ns_;
  if (counter_ && age < kBaselineNs) std::this_thread::sleep_for(std::chrono::nanoseconds(kBaselineNs - age));
  Scale scale;
  timespec wall;
  scale.ticks_ = now();
  const uint64_t ns = monotonic_ns();
  clock_gettime(CLOCK_REALTIME, &wall);
  scale.wall_ns_ = int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  if (counter_) {
    scale.ns_per_tick_ = static_cast<double>(ns - first_ns_) / static_cast<double>(scale.ticks_ - first_ticks_);
  }
  return scale;
}

int64_t TickClock::Scale::wall_ns(uint64_t ticks) const {
  // Distances from the moment of reading are small enough for a double to hold them to the nanosecond for months.
  const auto distance = static_cast<int64_t>(ticks - ticks_);
  return wall_ns_ + std::llround(static_cast<double>(distance) * ns_per_tick_);
}

}  // namespace tutti::comm
