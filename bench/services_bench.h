// `tutti bench services`: what a job costs around its collectives: the store, the flight recorder, making groups.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutti/comm/process_group.h"

namespace tutti::bench {

// One measurement. `count` and `of` say what one run handles: 64 bytes, 2000 clients, 1000 groups.
struct ServiceResult {
  std::string
      service;  // store_set store_get store_connect store_barrier recorder_at_once recorder_taking_time new_group
  int64_t count = 0;
  std::string of;                    // bytes, clients, groups, calls
  int ranks = 1;                     // processes that take part
  double min_ns = 0, median_ns = 0;  // of one run
};

using Report = std::function<void(const ServiceResult&)>;

// Recording one call: one that ends at once, and one that takes time.
void bench_recorder(const Report& report);
// Round trips of a client over loopback, with a job key; client and server are threads of this process.
void bench_store(const Report& report);
// `clients` threads connect, each with a handle of its own, and prove their key (store_connect); then they meet in a
// barrier, and all end (store_barrier). EnvironmentError when this process may not open so many sockets or threads.
void bench_store_clients(int clients, const Report& report);
// Every rank of `world` calls it; rank 0 reports. `groups` groups of all ranks are made one after another, then used.
void bench_new_group(comm::ProcessGroup& world, int groups, const Report& report);

}  // namespace tutti::bench
