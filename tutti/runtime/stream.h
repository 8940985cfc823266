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

// The stream of a device that every thread has at the start.
Stream& default_stream(Device device);
// The stream that calls without a stream argument use on this thread: that of its innermost StreamScope for the device,
// else the default stream.
Stream& current_stream(Device device);

// While it lives, calls of this thread on the stream's device use `stream`. Scopes nest; other devices and other
// threads keep theirs. What one stream reads of another's results waits for an event of it:
//
//   StreamScope scope(side);
//   side.wait_for(default_stream(device).record());
//   Tensor y = exp(x);  // on `side`, after what made x
class StreamScope {
 public:
  explicit StreamScope(Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  friend Stream& current_stream(Device device);
  Stream& stream_;
  const StreamScope* const outer_;
};

}  // namespace tutti
