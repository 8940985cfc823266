// Conversion of timeouts to deadlines, which every wait for other ranks uses.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti::comm {

// Longer timeouts are reduced to this, so that the sum of a time point and a few timeouts cannot overflow.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

// How often a rank that waits for others looks whether they are alive.
inline constexpr std::chrono::milliseconds kLookAround{100};

// A negative timeout counts as 0; milliseconds::max() is allowed.
inline std::chrono::steady_clock::time_point deadline_after(
    std::chrono::milliseconds timeout, std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
  return now + std::clamp(timeout, std::chrono::milliseconds(0), kLongestWait);
}

}  // namespace tutti::comm
