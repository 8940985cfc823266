// How the ranks of a job find their store: from the environment, a URL, or a store that is there already.
//
//   env://                                      the launcher's variables (launch_variables.h)
//   tcp://host:port?rank=R&world_size=W         rank 0 serves on that port
//   file:///path?rank=R&world_size=W            a file that all ranks reach; it must not exist before
//
// Rank and world size may be given as arguments instead of in the URL, not both.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tutti/comm/store/local_meeting.h"
#include "tutti/comm/store/store.h"
#include "tutti/comm/store/tcp_store_server.h"

namespace tutti::comm {

struct RendezvousOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  // For finding the store, and the store's own timeout.
  std::chrono::milliseconds timeout = kDefaultStoreTimeout;
  std::string job_key = read_job_key();
};

struct Rendezvous {
  std::shared_ptr<Store> store;
  int rank = 0;
  int world_size = 1;
  // What the launcher said about this host.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  // Where this process serves (rank 0): keep it until no rank needs the store any more.
  std::shared_ptr<TcpStoreServer> server;
  std::shared_ptr<LocalDoor> door;  // where the others ask for its port
};

// UsageError when the URL or the environment is incomplete, contradicts itself or the arguments, or names a scheme that
// does not exist; StoreTimeout when the store is not there at the deadline; EnvironmentError when rank 0 cannot serve.
Rendezvous rendezvous(const std::string& url = "env://", RendezvousOptions options = {});

// A store that is there already.
Rendezvous rendezvous(std::shared_ptr<Store> store, int rank, int world_size);

}  // namespace tutti::comm
