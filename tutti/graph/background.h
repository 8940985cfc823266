// Kernels that are compiled while calls go on op by op.
#pragma once

#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "tutti/graph/guards.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// Any thread. The destructor waits for what is under way.
class BackgroundBuilds {
 public:
  BackgroundBuilds() = default;
  ~BackgroundBuilds();
  BackgroundBuilds(const BackgroundBuilds&) = delete;
  BackgroundBuilds& operator=(const BackgroundBuilds&) = delete;

  // Runs `work` on a thread of its own, for calls that `guards` describe.
  void start(Guards guards, std::function<void()> work);
  // Whether work for such a call is under way. Throws what it threw, once, when it has failed.
  bool has(const Leaves& arguments);
  // The guards of what was started and not asked for since it was done.
  void for_each_kind(FunctionRef<void(const Guards&)> visit);

 private:
  struct Job {
    Guards guards;
    std::thread thread;
    bool done = false;
    std::exception_ptr error;
  };
  std::mutex mutex_;  // of jobs_ and what is in them
  std::list<Job> jobs_;
};

}  // namespace tutti::graph
