// Stream and Event: ordering of work on a device.
//
// Work on one stream runs in order; streams of a device are independent until one waits for an event of
// another. The CPU stream is synchronous: work is done when the call returns. When asynchronous work fails, the next
// wait() or synchronize() that covers it throws the error, once; if several fail, the first error.
#pragma once

#include <functional>
#include <memory>

#include "tutti/core/device.h"

namespace tutti {

// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool is_done() const { return true; }
  virtual void wait() const {}  // blocks
};

// A stream is used by one thread at a time; events may be waited for by any thread.
class Stream {
 public:
  explicit Stream(Device device = kCpu) : device_(device) {}
  virtual ~Stream() = default;
  Device device() const { return device_; }

  // Enqueues a host function, which is kept alive until it has run.
  virtual void submit(std::function<void()> work) { work(); }
  // An event that is done when all work enqueued so far is.
  virtual std::shared_ptr<Event> record() { return std::make_shared<Event>(); }
  // Work enqueued from now on runs after `event`.
  virtual void wait_for(std::shared_ptr<const Event> event) { event->wait(); }
  // Blocks until all work enqueued on this stream is done.
  virtual void synchronize() {}

 private:
  Device device_;
};

// The stream that calls without a stream argument use.
Stream& default_stream(Device device);

}  // namespace tutti
