// LoopWaker: calls a function in the thread in which gloo reads and writes the connections of a device.
//
// A pair of gloo has a lock, which sending and receiving take in any thread. Where gloo's own thread does not get it,
// it looks for events again at once, and goes on so until its time slice is over: for milliseconds, where the thread
// that has the lock waits for the same processor. What runs in that thread itself never meets it.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

class LoopWaker final : public gloo::transport::tcp::Handler {
 public:
  // `work` must not throw. EnvironmentError when the process has no descriptor left.
  LoopWaker(std::shared_ptr<gloo::transport::tcp::Device> device, std::function<void()> work);
  // `work` runs once more; when it returns, it runs no more. Not in a process that was forked after the construction,
  // where the thread is missing.
  ~LoopWaker() override;
  // `work` runs once or more after this call. Any thread.
  void wake();

  void handleEvents(int events) override;

 private:
  const std::shared_ptr<gloo::transport::tcp::Device> device_;
  const std::function<void()> work_;
  const UniqueFd event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false, has_ended_ = false;  // guarded by mutex_
};

}  // namespace tutti::comm
