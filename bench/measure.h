// Timing for the benchmarks: minimum and median of repeated runs, never a mean.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <vector>

namespace tutti::bench {

struct Timing {
  double min_us = 0;
  double median_us = 0;
};

// The times are of at least one call.
inline Timing timing_of(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return {us.front(), us[us.size() / 2]};
}

inline double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

enum class MeasuredTime : uint8_t {
  wall,
  thread,  // the processor time of the calling thread: what runs beside it on the machine takes none of that
};

inline double now_us(MeasuredTime clock) {
  if (clock == MeasuredTime::wall)
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// Calls fn in batches that last about `batch_ms`, at least `batches` of them after two warm-up calls.
template <class Fn>
Timing measure(Fn&& fn, double batch_ms = 4.0, int batches = 15, MeasuredTime clock = MeasuredTime::wall) {
  const auto time_of = [&](int64_t calls) {
    const double begin = now_us(clock);
    for (int64_t i = 0; i < calls; ++i) fn();
    return (now_us(clock) - begin) / static_cast<double>(calls);
  };
  fn();
  const double once = std::max(time_of(1), 0.01);
  const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(batch_ms * 1e3 / once));
  std::vector<double> samples;
  for (int b = 0; b < batches; ++b) samples.push_back(time_of(calls));
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}

// All ways in turns, so that they meet the same noise: rounds until `total_ms` are over, 3 to 40 of them. A sample
// takes as many calls as last about 2 ms. No warm-up but one call of each.
inline std::vector<Timing> measure_in_turns(const std::vector<std::function<void()>>& ways, double total_ms = 600.0,
                                            MeasuredTime clock = MeasuredTime::wall) {
  std::vector<std::vector<double>> samples(ways.size());
  std::vector<int64_t> calls(ways.size(), 1);
  const double begin = now_us(MeasuredTime::wall);
  for (int round = -1; round < 3 || (round < 40 && now_us(MeasuredTime::wall) - begin < total_ms * 1e3); ++round) {
    for (size_t way = 0; way < ways.size(); ++way) {
      const double start = now_us(clock);
      for (int64_t call = 0; call < calls[way]; ++call) ways[way]();
      const double each = std::max((now_us(clock) - start) / static_cast<double>(calls[way]), 0.001);
      if (round >= 0) samples[way].push_back(each);
      else calls[way] = std::max<int64_t>(1, static_cast<int64_t>(2e3 / each));
    }
  }
  std::vector<Timing> times;
  for (std::vector<double>& list : samples) {
    std::sort(list.begin(), list.end());
    times.push_back({list.front(), list[list.size() / 2]});
  }
  return times;
}

struct CallTiming {
  Timing time;
  double min_cpu_us = 0;  // of all threads of the process: what other programs on the machine disturb less
};

// Calls fn `calls` times and times each: for what takes long enough to need no batches. No warm-up.
template <class Fn>
CallTiming measure_each(Fn&& fn, int calls) {
  using Clock = std::chrono::steady_clock;
  const auto cpu_us = [] { return static_cast<double>(std::clock()) * 1e6 / CLOCKS_PER_SEC; };
  std::vector<double> samples, cpu;
  for (int i = 0; i < calls; ++i) {
    const auto begin = Clock::now();
    const double cpu_begin = cpu_us();
    fn();
    cpu.push_back(cpu_us() - cpu_begin);
    samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(samples.begin(), samples.end());
  return {{samples.front(), samples[samples.size() / 2]}, *std::min_element(cpu.begin(), cpu.end())};
}

}  // namespace tutti::bench
