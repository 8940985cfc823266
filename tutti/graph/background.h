// Background compilation: kernels are compiled while calls run eagerly.
#pragma once

#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "tutti/graph/guards.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// May be used by any thread. The destructor waits for work in progress.
class BackgroundBuilds {
 public:
  BackgroundBuilds() = default;
  ~BackgroundBuilds();
  BackgroundBuilds(const BackgroundBuilds&) = delete;
  BackgroundBuilds& operator=(const BackgroundBuilds&) = delete;

  // Runs `work` on a new thread, for calls that match `guards`.
  void start(Guards guards, std::function<void()> work);
  // Whether work for such a call is in progress. If it has failed, throws its error, once.
  bool has(const Leaves& arguments);
  // Visits the guards of all jobs that has() has not yet found completed.
  void for_each_kind(FunctionRef<void(const Guards&)> visit);

 private:
  struct Job {
    Guards guards;
    std::thread thread;
    bool done = false;
    std::exception_ptr error;
  };
  std::mutex mutex_;  // protects jobs_ and their contents
  std::list<Job> jobs_;
};

}  // namespace tutti::graph
