// Threads for connections, made when they are needed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::generate::serve {

// A connection keeps its thread. When `connections` are open, a few more get a thread that is known to be spare, so
// that they can be told so; beyond these, they wait.
class WorkerPool {
 public:
  explicit WorkerPool(int64_t connections) : connections_(connections) {}

  void add(std::function<void()> task);
  // Returns when all tasks have ended.
  void join();
  // Whether the calling thread serves a connection that is one too many.
  static bool is_spare();

 private:
  static constexpr int64_t kSpare = 16;
  void work();

  const int64_t connections_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  int64_t idle_ = 0;
  int64_t served_ = 0;  // connections that are not too many
  bool is_ending_ = false;
};

}  // namespace tutti::generate::serve
