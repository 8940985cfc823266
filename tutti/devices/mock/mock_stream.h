// MockStream: a stream of the mock device whose work is deferred under the control of a test.
//
// Work stays in a queue until it is waited for (synchronize(), Event::wait(), destruction of the stream) or a test
// calls run_next(). A program that forgets to wait therefore reads stale memory every time, not once in a thousand
// runs. Thread safety: submit from one thread, wait and run from any thread.
#pragma once

#include <cstdint>

#include "tutti/runtime/stream.h"

namespace tutti {

class MockStream : public Stream {
 public:
  explicit MockStream(int index);
  ~MockStream() override;  // runs the remaining work; failures that were not waited for are ignored

  void submit(std::function<void()> work) override;
  std::shared_ptr<Event> record() override;
  void wait_for(std::shared_ptr<const Event> event) override;
  void synchronize() override;

  int64_t pending() const;  // the number of work items not yet run
  bool run_next();          // runs the oldest one on this thread; false when there is none

  struct Queue;  // shared with the events, which may outlive the stream

 private:
  std::shared_ptr<Queue> queue_;
};

}  // namespace tutti
