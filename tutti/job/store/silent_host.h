// Detects that the host at the other end of a TCP connection has vanished, or the way to it: nothing comes any more,
// not even the end of the connection.
//
// It is the kernels that answer. A process that is stopped or busy, and reads nothing for hours, is not taken for one
// that is gone.
#pragma once

#include <chrono>
#include <optional>

namespace tutti::comm {

// Hosts that give no sign of life for so long count as gone.
inline constexpr std::chrono::seconds kSilenceOfAHost{7};

// The system ends the connection, with ETIMEDOUT, after that time of silence in which nothing was sent.
void end_when_host_is_silent(int fd);

// While something is under way the system tries for a quarter of an hour. Whoever waits for the connection asks here
// now and then. One thread at a time.
class SilenceWatch {
 public:
  // Whether what was sent over the connection has been repeated in vain for kSilenceOfAHost.
  bool is_silent(int fd);

 private:
  std::optional<std::chrono::steady_clock::time_point> since_;
};

}  // namespace tutti::comm
