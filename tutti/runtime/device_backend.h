// DeviceBackend: memory, copies and streams of a device. There is one backend per device kind, looked up at run time.
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
  // Copies are enqueued on `stream` and complete when it is synchronized. The caller keeps both buffers alive until
  // then.
  virtual void copy_from_host(void* device_data, const void* host, int64_t nbytes, int index, Stream& stream) = 0;
  virtual void copy_to_host(void* host, const void* device_data, int64_t nbytes, int index, Stream& stream) = 0;
  virtual void copy_on_device(void* to, const void* from, int64_t nbytes, int index, Stream& stream) = 0;
  virtual std::unique_ptr<Stream> make_stream(int index) = 0;
};

// The backend of `device`. UsageError when there is none for its kind or the index is out of range.
DeviceBackend& device_backend(Device device);
// Registers `backend` for `kind`; nullptr removes the backend. Destroys the default streams of that kind. Must not be
// called while tensors on devices of that kind exist.
void register_device_backend(DeviceKind kind, DeviceBackend* backend);

}  // namespace tutti
