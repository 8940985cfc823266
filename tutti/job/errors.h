// The errors that collectives and everything else which waits for other ranks throw besides UsageError.
#pragma once

#include <string>
#include <string_view>

#include "tutti/core/error.h"

namespace tutti::comm {

// A peer died or left, or the group was aborted. Every later call of the group throws it again. The text names the
// rank, its pid and host, the operation and its sequence number, and how the failure was detected.
class PeerError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// A call did not finish by its deadline. The text names the late ranks and what they are doing.
class TimeoutError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// Ranks tell each other as text why a group has ended. The text begins with this when a deadline has passed.
inline constexpr std::string_view kDeadlinePassed = "deadline passed: ";

// Throws the error of a call that was in progress when its group ended, on every rank: TimeoutError when a rank was
// late, whichever rank's deadline passed first, else PeerError. Later calls throw PeerError.
[[noreturn]] inline void throw_ended(const std::string& reason) {
  if (reason.starts_with(kDeadlinePassed)) throw TimeoutError(reason);
  throw PeerError(reason);
}

// This rank ends because another one did, and that one has the reason: whoever reports one error of a job takes
// another.
class StoppedByPeer : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

}  // namespace tutti::comm
