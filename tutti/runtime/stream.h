// Stream and Event: the order of work on a device. The CPU stream is inline: work is done when the call returns.
#pragma once

#include "tutti/core/device.h"

namespace tutti {

class Stream {
 public:
  explicit Stream(Device device = kCpu) : device_(device) {}
  virtual ~Stream() = default;
  Device device() const { return device_; }
  // Blocks until all work given to this stream is done.
  virtual void synchronize() {}

 private:
  Device device_;
};

// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream&) {}
  virtual bool is_done() const { return true; }
  virtual void wait() const {}  // blocks
};

// The stream that calls use when none is given.
Stream& default_stream(Device device);

}  // namespace tutti
