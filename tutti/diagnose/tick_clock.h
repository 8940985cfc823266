// TickClock: time stamps that cost one instruction and are converted to nanoseconds when they are read.
#pragma once

#include <time.h>

#include <cstdint>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace tutti::comm {

// A tick is a cycle of the processor's time stamp counter where that counter runs evenly and on all cores alike, else
// a nanosecond of the monotonic clock. Any thread.
class TickClock {
 public:
  TickClock();

  uint64_t now() const {
#ifdef __x86_64__
    if (counter_) [[likely]]
      return __rdtsc();
#endif
    return monotonic_ns();
  }

  // How ticks become nanoseconds of the wall clock (since 1970), measured between the making of the clock and now.
  // May sleep for some milliseconds to measure well.
  class Scale {
   public:
    int64_t wall_ns(uint64_t ticks) const;

   private:
    friend class TickClock;
    uint64_t ticks_ = 0;
    int64_t wall_ns_ = 0;
    double ns_per_tick_ = 1.0;
  };
  Scale scale() const;

 private:
  static uint64_t monotonic_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
  }

  bool counter_ = false;
  uint64_t first_ticks_ = 0;
  uint64_t first_ns_ = 0;
};

}  // namespace tutti::comm
