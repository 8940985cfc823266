// Runs gloo's calls that wait for a connection in a separate thread, because their deadline cannot be changed and they cannot
// be told that a peer has died. They end when the connection they wait for is closed.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/transport.h"

namespace gloo::transport {
class Context;
}

namespace tutti::comm {

// Connects `context`, whose pairs have been made, to all ranks. One thread.
class GlooConnector {
 public:
  // addresses[p]: the address at which rank p listens for this one; that of this rank is not used.
  GlooConnector(gloo::transport::Context& context, std::vector<std::vector<char>> addresses);
  // Abandons connections that are not established.
  ~GlooConnector();
  GlooConnector(const GlooConnector&) = delete;
  GlooConnector& operator=(const GlooConnector&) = delete;

  // True when all are connected, false after `limit`. EnvironmentError when the connection to peer() cannot be made.
  bool wait_for(std::chrono::milliseconds limit);
  // The rank whose connection is waited for.
  int peer() const;

 private:
  void run();

  gloo::transport::Context& context_;
  const std::vector<std::vector<char>> addresses_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  int peer_ = 0;  // all before it are connected
  bool stopping_ = false;
  std::string error_;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace tutti::comm
