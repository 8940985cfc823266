// The time of a call that all ranks of a group make.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::bench {

// Median over samples of about a millisecond, the slowest rank's.
template <class Call>
double time_us(comm::ProcessGroup& group, const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto time_of = [&](int64_t calls) {
    group.barrier();
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(calls);
  };
  double once = time_of(3);
  group.all_reduce_values<double>({&once, 1}, comm::ReduceKind::max);
  const int64_t calls = std::clamp<int64_t>(static_cast<int64_t>(1000.0 / once), 1, 1000);
  std::vector<double> samples;
  for (int k = 0; k < 15; ++k) samples.push_back(time_of(calls));
  std::sort(samples.begin(), samples.end());
  double median = samples[samples.size() / 2];
  group.all_reduce_values<double>({&median, 1}, comm::ReduceKind::max);
  return median;
}

}  // namespace tutti::bench
