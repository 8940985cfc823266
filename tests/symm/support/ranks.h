// Ranks for tests of symmetric memory: threads of this process, or processes of their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/job/store/store.h"
#include "tutti/symm/group.h"

namespace tutti::comm::symm {

struct World {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  std::string backend;

  // The group of all ranks, bound to the backend.
  SymmGroup group(const std::string& name = "world",
                  std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;
  // The group of some; no group on the others.
  SymmGroup subgroup(const std::string& name, const std::vector<int>& ranks,
                     std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;
};

struct Outcome {
  std::string error;    // what() of the exception the rank ended with
  int wait_status = 0;  // of processes
  bool succeeded() const { return error.empty() && wait_status == 0; }
};

using RankFunction = std::function<void(const World&)>;

// Runs fn on `size` ranks and returns when all have ended. Expectations may be used in fn. Each rank has a RankContext.
std::vector<Outcome> run_threads(int size, const std::string& backend, const RankFunction& fn);
std::vector<Outcome> run_processes(int size, const std::string& backend, const RankFunction& fn);

// "native" and "threads"; in a build without processes "threads".
std::vector<const char*> live_backends();
// "native" runs processes, "threads" runs threads; every rank must succeed.
void run_on(const std::string& backend, int size, const RankFunction& fn);

int open_descriptors();
// Mappings of memory files in this process.
int mapped_segments();
// what() of what fn throws; "" when it throws nothing.
std::string complaint_of(const std::function<void()>& fn);

}  // namespace tutti::comm::symm
