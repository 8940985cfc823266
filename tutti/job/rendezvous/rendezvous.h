// How the ranks of a job find their store: from the environment, a URL, or an existing store.
//
//   env://                                      the launcher's variables (launch_variables.h)
//   tcp://host:port?rank=R&world_size=W         rank 0 serves the store on that port
//   file:///path?rank=R&world_size=W            a file that all ranks can access; it must not exist beforehand
//
// Rank and world size may be given as arguments instead of in the URL, not both.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tutti/job/rendezvous/local_meeting.h"
#include "tutti/job/store/store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {

struct RendezvousOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  // Applies to finding the store, and is the timeout of the store itself.
  std::chrono::milliseconds timeout = kDefaultStoreTimeout;
  std::string job_key = read_job_key();
};

struct Rendezvous {
  std::shared_ptr<Store> store;
  int rank = 0;
  int world_size = 1;
  // As given by the launcher, if it was.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  // On a rank that serves the store (rank 0): keep it until no rank needs the store any more.
  std::shared_ptr<TcpStoreServer> server;
  std::shared_ptr<LocalDoor> door;  // through which the other ranks get its port
};

// UsageError when the URL or the environment is incomplete, contradicts itself or the arguments, or names an unknown
// scheme; StoreTimeout when the store is not reachable by the deadline; EnvironmentError when rank 0 cannot serve it.
Rendezvous rendezvous(const std::string& url = "env://", RendezvousOptions options = {});

// The same with an existing store.
Rendezvous rendezvous(std::shared_ptr<Store> store, int rank, int world_size);

}  // namespace tutti::comm
