// The process that holds the table of a TcpStore: one thread that serves thousands of clients.
//
// Whoever has no job key (job_key.h) is kept out: with a key, a client that does not prove that it knows it is refused;
// without one, the server listens on a loopback address only. A client that breaks a rule of the protocol or stalls in
// the middle of a request is dropped with a reply that says why; none can stop the server or make it hold more
// than one request and one reply of 129 MiB for it.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "tutti/comm/store/job_key.h"

namespace tutti::comm {

struct TcpStoreServerOptions {
  // A name or number; "" = 127.0.0.1 without a job key, every address of this host with one.
  std::string bind_address = "";
  int port = 0;  // 0 = the system picks one that is free
  std::string job_key = read_job_key();
};

// Serves from construction to destruction; clients that are connected at the end see the connection close. Any thread
// may call it.
class TcpStoreServer {
 public:
  // EnvironmentError when it cannot listen; the text names address and port and, where /proc tells, the process that
  // holds the port. UsageError for an address other than loopback without a job key.
  explicit TcpStoreServer(TcpStoreServerOptions options = {});
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const { return port_; }
  // Connections that are open now.
  int64_t num_clients() const;
  // How many clients were refused or dropped, and why the last one was: "127.0.0.1:41234: it has another job key".
  int64_t num_refused() const;
  std::string last_refusal() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace tutti::comm
