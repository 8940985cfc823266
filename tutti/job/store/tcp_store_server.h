// TcpStoreServer: holds the table of TcpStores and serves thousands of clients with one thread.
//
// With a job key (job_key.h), a client that does not prove that it knows the key is refused; without one, the server
// only listens on a loopback address. A client that violates the protocol or stalls in the middle of a request is
// dropped, with a reply that says why. No client can stop the server or make it buffer more than one request and one
// reply of 129 MiB. A request with a list of more than 65536 items (kMaxStoreKeys) is answered with an error.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "tutti/job/store/job_key.h"
#include "tutti/runtime/fork_guard.h"

namespace tutti::comm {

struct TcpStoreServerOptions {
  // A host name or address; "": 127.0.0.1 without a job key, every address of this host with one.
  std::string bind_address = "";
  int port = 0;  // 0: a free port chosen by the system
  std::string job_key = read_job_key();
};

// Serves from construction to destruction, which closes the connections of remaining clients. May be called by any
// thread.
class TcpStoreServer {
 public:
  // EnvironmentError when it cannot listen; the text names address and port and, if /proc shows it, the process that
  // uses the port. UsageError for an address other than loopback without a job key.
  explicit TcpStoreServer(TcpStoreServerOptions options = {});
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const { return port_; }
  // The number of open connections.
  int64_t num_clients() const;
  // How many clients were refused or dropped, and why the last one was: "127.0.0.1:41234: it has another job key".
  int64_t num_refused() const;
  std::string last_refusal() const;

 private:
  class Loop;
  const ForkGuard process_;
  std::unique_ptr<Loop> loop_;
  int port_ = 0;
  std::thread thread_;
};

// The same, for callers that are also part of builds without stores over TCP, where it is a UsageError that says so.
std::shared_ptr<TcpStoreServer> serve_store(TcpStoreServerOptions options = {});

}  // namespace tutti::comm
