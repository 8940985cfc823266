// ThreadPool: a pool of workers for parallel loops inside one operation.
//
// Any thread may call parallel_for; calls from different threads are serialized, and a call from inside a loop body
// runs inline. Work is distributed in chunks, and the caller takes part. Results must not depend on which thread ran
// which chunk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/runtime/function_ref.h"

namespace tutti {

class ThreadPool {
 public:
  // `threads` includes the caller: 1 means no workers. EnvironmentError when the system cannot create the threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool of this thread's RankContext.
  static ThreadPool& current();

  // Whether this thread is running the body of a parallel loop, in which case loops that it calls run inline.
  static bool is_inside_loop();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on disjoint ranges that cover [0, n), each except the last at least `grain` long. The first
  // exception that a body throws is rethrown here after all ranges have ended.
  void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  struct Job;
  void worker_loop();
  void stop();
  static void run_chunks(Job& job, bool passes_boundaries);

  std::vector<std::thread> workers_;
  std::mutex call_mutex_;  // one loop at a time
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  uint64_t generation_ = 0;
  std::atomic<uint64_t> published_{0};
  std::atomic<int> active_{0};  // workers on job_; written under mutex_
  bool stop_ = false;
};

}  // namespace tutti
