// Nanoseconds of a cache line's round trip between core 0 and core 1, the median of many: where the host has put them.
// g++ -O2 -pthread roundtrip.cpp -o roundtrip && ./roundtrip
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

alignas(128) static std::atomic<int> ball{0};

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

int main() {
  constexpr int kSamples = 200, kTrips = 1000;
  std::thread other([] {
    pin(1);
    for (int i = 0; i < kSamples * kTrips; ++i) {
      while (ball.load(std::memory_order_acquire) != 1) {
      }
      ball.store(0, std::memory_order_release);
    }
  });
  pin(0);
  std::vector<double> times;
  for (int s = 0; s < kSamples; ++s) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTrips; ++i) {
      ball.store(1, std::memory_order_release);
      while (ball.load(std::memory_order_acquire) != 0) {
      }
    }
    times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() /
                    kTrips);
  }
  other.join();
  std::sort(times.begin(), times.end());
  std::printf("%.0f\n", times[times.size() / 2]);
}
