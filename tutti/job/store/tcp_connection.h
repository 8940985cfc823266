// The client's end of a connection to a TcpStoreServer: whole frames with deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/job/store/silent_host.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {

struct WireReply {
  WireStatus status = WireStatus::kOk;
  std::string body;
};

// Used by one thread at a time. After an EnvironmentError from call() it stays broken: what the server did with the
// request is unknown, and replies would no longer belong to their requests.
class TcpConnection {
 public:
  // Retries until a server answers or the time is over, then greets it and proves the key. StoreTimeout, naming
  // address, time and last error. UsageError when client and server have different job keys, or only one of them has a
  // key.
  TcpConnection(const std::string& host, int port, const std::string& job_key, std::chrono::milliseconds timeout);

  // "tcp://127.0.0.1:29500"
  const std::string& address() const { return address_; }
  // Sends a frame and waits for its reply. `op` and `key` are for messages: "store at tcp://h:p: the server closed the
  // connection during get of 'k'". EnvironmentError when the server is gone, silent at the deadline, or on a host that
  // has vanished.
  WireReply call(const std::string& frame, const StoreDeadline& deadline, std::string_view op, std::string_view key);

 private:
  // False when the server went away in the middle, which is worth another try.
  bool greet(const std::string& job_key, const StoreDeadline& deadline, std::string& error);
  bool exchange(const std::string& frame, const StoreDeadline& deadline, WireReply& reply, std::string& error);
  bool send_all(std::string_view bytes, const StoreDeadline& deadline, std::string& error);
  bool receive_all(char* bytes, size_t count, const StoreDeadline& deadline, std::string& error);
  bool wait_until_ready(short events, const StoreDeadline& deadline, std::string& error);

  std::string address_;
  UniqueFd fd_;
  SilenceWatch silence_;
  std::string broken_;  // why, "" while it works
};

}  // namespace tutti::comm
