// Copies of tensors between devices.
//
// Every pair of devices works: host to device, device to host, inside one device, and between two devices through a
// staging buffer on the host. A copy keeps sizes, dtype and, when the source is dense in some order of its dims, that
// order; any other source becomes row-major. For a dense view only its elements are transferred; for a strided view on
// a device, all bytes from its first to its last element. Autograd state is not copied. UsageError for an undefined
// tensor or a device that does not exist; DeviceCopyError when an allocation or a transfer fails, after the new memory
// has been freed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/core/error.h"
#include "tutti/runtime/stream.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

enum class CopyStep : uint8_t { allocate, host_to_device, device_to_host, on_device };
std::string_view name_of(CopyStep step);

class DeviceCopyError : public EnvironmentError {
 public:
  DeviceCopyError(CopyStep step, Device source, Device target, const Extents& sizes, int64_t nbytes,
                  std::string reason);
  CopyStep step;
  Device source, target;
  Extents sizes;       // of the tensor
  int64_t nbytes;      // the size of the failed allocation or transfer
  std::string reason;  // as reported by the device's driver
};

// A copy of `source` in new memory on `device`, which may be the device of `source`.
Tensor clone_to(const Tensor& source, Device device);
// `source` itself when it is already on `device`, else a clone there.
Tensor to_device(const Tensor& source, Device device);

// A copy in progress: `tensor` may be read once `done` has completed, or by work enqueued later on the same stream.
struct PendingCopy {
  Tensor tensor;
  std::shared_ptr<Event> done;
};
// Enqueues clone_to on `stream`, a stream of the source's or the target's device. The memory of both tensors is
// held until `done` completes; do not write the source before that. A transfer that fails late throws when `done` is
// waited for.
PendingCopy clone_to_async(const Tensor& source, Device device, Stream& stream);

}  // namespace tutti
