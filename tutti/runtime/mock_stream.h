// MockStream: a stream of the mock device whose work happens late, and when a test says so.
//
// Work waits in a queue until somebody waits for it (synchronize, Event::wait, the stream's end) or a test calls
// run_next(). A program that forgets to wait therefore reads stale memory every time, not once in a thousand runs.
// Thread safety: submit from one thread, wait and run from any.
#pragma once

#include <cstdint>

#include "tutti/runtime/stream.h"

namespace tutti {

class MockStream : public Stream {
 public:
  explicit MockStream(int index);
  ~MockStream() override;  // runs what is left; failures nobody asked for end here

  void submit(std::function<void()> work) override;
  std::shared_ptr<Event> record() override;
  void wait_for(std::shared_ptr<const Event> event) override;
  void synchronize() override;

  int64_t pending() const;  // pieces of work not yet run
  bool run_next();          // runs the oldest one here; false when there is none

  struct Queue;  // shared with the events, which may outlive the stream

 private:
  std::shared_ptr<Queue> queue_;
};

}  // namespace tutti
