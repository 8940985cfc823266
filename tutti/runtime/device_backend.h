// What a device can do: memory, copies and streams. One backend per device kind, found at run time.
//
// Backends may be called from any thread. Failures are EnvironmentErrors that name the device, the bytes and the
// reason.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/core/device.h"
#include "tutti/runtime/stream.h"

namespace tutti {

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual int device_count() const = 0;
  // Aligned to at least 64 bytes; nullptr for 0 bytes.
  virtual void* allocate(int64_t nbytes, int index) = 0;
  virtual void deallocate(void* data, int64_t nbytes, int index) noexcept = 0;
  // Ordered after what `stream` holds; complete when the stream is synchronized. The caller keeps both ends until then.
  virtual void copy_from_host(void* device_data, const void* host, int64_t nbytes, int index, Stream& stream) = 0;
  virtual void copy_to_host(void* host, const void* device_data, int64_t nbytes, int index, Stream& stream) = 0;
  virtual void copy_on_device(void* to, const void* from, int64_t nbytes, int index, Stream& stream) = 0;
  virtual std::unique_ptr<Stream> make_stream(int index) = 0;
};

// The backend of `device`. UsageError when the kind has none here or the index is out of range.
DeviceBackend& device_backend(Device device);
// Makes `backend` serve `kind`; nullptr removes it. Ends the default streams of that kind. Not while tensors of that
// kind exist.
void register_device_backend(DeviceKind kind, DeviceBackend* backend);

}  // namespace tutti
