// When a wait ends. Every deadline of this room that comes from a timeout is reckoned here.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti::comm {

// Longer timeouts are cut to this, so that sums of a moment and a few of them stay in a clock's range.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

// A negative timeout counts as 0; milliseconds::max() is as good as any.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout,
                                                            std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
  return now + std::clamp(timeout, std::chrono::milliseconds(0), kLongestWait);
}

}  // namespace tutti::comm
