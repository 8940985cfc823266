// What collectives throw beside UsageError.
#pragma once

#include <string>
#include <string_view>

#include "tutti/core/error.h"

namespace tutti::comm {

// A peer died, left, or the group was aborted: every later call of the group throws it again. The text names the rank,
// its pid and host, the operation and its number, and how it was noticed.
class PeerError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// A call did not finish by its deadline. The text names the ranks that are late and what they are doing.
class TimeoutError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// Why a group has ended travels between ranks as text. It begins with this where a deadline has passed.
inline constexpr std::string_view kDeadlinePassed = "deadline passed: ";

// What a call that was under way ends with on every rank when its group ends: TimeoutError when a rank was late, whoever's
// deadline came first, else PeerError. Later calls throw PeerError.
[[noreturn]] inline void throw_ended(const std::string& reason) {
  if (reason.starts_with(kDeadlinePassed)) throw TimeoutError(reason);
  throw PeerError(reason);
}

}  // namespace tutti::comm
