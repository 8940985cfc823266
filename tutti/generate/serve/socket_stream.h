// Reads and writes a socket in bounded time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace tutti::generate::serve {

// For one thread. The socket is not owned.
class SocketStream {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Each write ends within `write_time`; what is read comes before the time that begin_request() sets.
  SocketStream(int socket, Milliseconds write_time);

  // Waits for bytes, or for the end of the connection; whether there is either.
  bool wait_for_bytes(Milliseconds time) const;
  void begin_request(Milliseconds time) { deadline_ = std::chrono::steady_clock::now() + time; }
  // Ends the connection so that a client that still sends reads what was written: a socket that is closed with unread
  // bytes in it takes its last words back. Reads what still comes, for so long and up to a mebibyte.
  void linger(Milliseconds time);

  bool is_readable() const;
  // Whether the client has not closed its side.
  bool is_connected() const;
  // Whether the client takes bytes, and has not gone.
  bool is_writable() const;
  // As many bytes as there are, 0 at the end, -1 when the time is over.
  ssize_t read(char* bytes, size_t most);
  // All bytes, or -1.
  ssize_t write(const char* bytes, size_t nbytes);
  int socket() const { return socket_; }

 private:
  bool fill(Milliseconds time);

  const int socket_;
  const Milliseconds write_time_;
  std::chrono::steady_clock::time_point deadline_{};
  std::string buffer_;  // bytes that were received and not read, from place_ on
  size_t place_ = 0;
};

}  // namespace tutti::generate::serve
