#include "tutti/generate/serve/socket_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tutti::generate::serve {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kBufferBytes = size_t{16} << 10;
constexpr size_t kLingerBytes = size_t{1} << 20;

// Whether the socket is ready for `events` within `time`.
bool waits(int socket, int16_t events, milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  for (;;) {
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const int ready = poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

milliseconds until(Clock::time_point end) {
  return std::max(std::chrono::ceil<milliseconds>(end - Clock::now()), milliseconds(0));
}

}  // namespace

SocketStream::SocketStream(int socket, Milliseconds write_time) : socket_(socket), write_time_(write_time) {}

bool SocketStream::wait_for_bytes(Milliseconds time) const {
  return place_ < buffer_.size() || waits(socket_, POLLIN, time);
}

bool SocketStream::fill(Milliseconds time) {
  if (!waits(socket_, POLLIN, time)) return false;
  buffer_.resize(kBufferBytes);
  const ssize_t nbytes = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  buffer_.resize(nbytes > 0 ? static_cast<size_t>(nbytes) : 0);
  place_ = 0;
  return nbytes >= 0;
}

void SocketStream::linger(Milliseconds time) {
  shutdown(socket_, SHUT_WR);
  const Clock::time_point end = Clock::now() + time;
  for (size_t left = kLingerBytes; Clock::now() < end && fill(until(end)) && !buffer_.empty();) {
    if (buffer_.size() >= left) return;
    left -= buffer_.size();
  }
}

bool SocketStream::is_readable() const { return wait_for_bytes(until(deadline_)); }

bool SocketStream::is_writable() const { return waits(socket_, POLLOUT, write_time_) && is_connected(); }

// A client that has closed its side is gone: none sends its end before it has its answer.
bool SocketStream::is_connected() const {
  if (!waits(socket_, POLLIN, Milliseconds(0))) return true;
  char byte = 0;
  return recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

ssize_t SocketStream::read(char* bytes, size_t most) {
  if (place_ == buffer_.size() && !fill(until(deadline_))) return -1;
  const size_t nbytes = std::min(most, buffer_.size() - place_);
  std::copy_n(buffer_.data() + place_, nbytes, bytes);
  place_ += nbytes;
  return static_cast<ssize_t>(nbytes);
}

ssize_t SocketStream::write(const char* bytes, size_t nbytes) {
  const Clock::time_point end = Clock::now() + write_time_;
  for (size_t written = 0; written < nbytes;) {
    const ssize_t part = send(socket_, bytes + written, nbytes - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (part > 0) written += static_cast<size_t>(part);
    else if (part < 0 && errno != EAGAIN && errno != EINTR) return -1;
    else if (!waits(socket_, POLLOUT, until(end)) || Clock::now() >= end) return -1;
  }
  return static_cast<ssize_t>(nbytes);
}

}  // namespace tutti::generate::serve
