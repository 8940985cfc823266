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
// that they can be told so; beyond these, or when the system gives no more threads, they wait.
class WorkerPool {
 public:
  // Starts a thread; std::system_error when there is none.
  using Start = std::function<std::thread(std::function<void()>)>;

  explicit WorkerPool(
      int64_t connections, Start start = [](std::function<void()> fn) { return std::thread(std::move(fn)); })
      : connections_(connections), start_(std::move(start)) {}

  // Whether the task runs, now or later; not when no thread exists and none can be started.
  bool add(const std::function<void()>& task);
  // Returns when all tasks have ended.
  void join();
  // Whether the calling thread serves a connection that is one too many.
  static bool is_spare();

 private:
  static constexpr int64_t kSpare = 16;
  void work();

  const int64_t connections_;
  const Start start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  int64_t idle_ = 0;
  int64_t served_ = 0;  // connections that are not too many
  bool is_ending_ = false;
};

}  // namespace tutti::generate::serve
