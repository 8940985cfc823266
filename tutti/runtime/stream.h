// Stream and Event: the order of work on a device.
//
// Work given to one stream happens in order; streams of a device are independent until one waits for an event of
// another. The CPU stream is inline: work is done when the call returns. A failure of work that a device does later is
// thrown by the next wait or synchronize that covers it, once; of several, the first.
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

// Calls on one stream come from one thread at a time; events may be waited for from any thread.
class Stream {
 public:
  explicit Stream(Device device = kCpu) : device_(device) {}
  virtual ~Stream() = default;
  Device device() const { return device_; }

  // Host work in the order of the stream. What it captures lives until it has run.
  virtual void submit(std::function<void()> work) { work(); }
  // Done when everything given so far is.
  virtual std::shared_ptr<Event> record() { return std::make_shared<Event>(); }
  // What is given from now on happens after `event`.
  virtual void wait_for(std::shared_ptr<const Event> event) { event->wait(); }
  // Blocks until all work given to this stream is done.
  virtual void synchronize() {}

 private:
  Device device_;
};

// The stream that calls use when none is given.
Stream& default_stream(Device device);

}  // namespace tutti
