// What collectives throw beside UsageError.
#pragma once

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

}  // namespace tutti::comm
