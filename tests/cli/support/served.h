// `tutti serve` as a process, with a tiny model of random weights, and what it holds.
#pragma once

#include <cstdint>
#include <string>

#include "tests/cli/support/program.h"

namespace tutti::test {

class Served {
 public:
  // Writes the model and starts the server with these flags. Before it starts, `prepare` may change the files.
  explicit Served(const std::string& flags, void (*prepare)(const Workplace&) = nullptr);
  // Ends it as a signal does, and expects a good end.
  ~Served();
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  int port() const { return port_; }
  // A number of /metrics.
  double metric(const std::string& name) const;
  // Until the number is `value`, for at most 20 seconds; whether it is.
  bool reaches(const std::string& name, double value) const;
  // Until no request runs or waits and no page is held.
  void settle() const;
  // Open descriptors, threads and resident KiB of the process.
  int64_t descriptors() const;
  int64_t threads() const { return status("Threads:"); }
  int64_t resident_kib() const { return status("VmRSS:"); }

 private:
  int64_t status(const std::string& key) const;

  const Workplace work_;
  int pid_ = 0;
  int port_ = 0;
};

// Sends `count` requests of mixed kinds from several clients, each of which is answered as its kind should be: texts
// and streams, clients that vanish, prompts above the context, wrong and large bodies, half requests.
void send_mixed_requests(const Served& server, int64_t count);

}  // namespace tutti::test
