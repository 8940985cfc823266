// Copies of tensors between devices.
//
// Every pair of devices works: host to device, device to host, inside one device, and between two devices through a
// staging buffer on the host. A copy keeps sizes, dtype and, when the source is dense in some order of its dims, that
// order; any other source becomes row-major. Only the elements of a dense view move; of a strided view on a device the
// stretch from its first to its last element. Gradient state does not travel. Errors: UsageError for an undefined
// tensor or a device that does not exist; DeviceCopyError when memory or a transfer fails, with the new block freed.
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
  int64_t nbytes;      // that the failed step was asked for
  std::string reason;  // as the device's driver gives it
};

// A copy of `source` in memory of its own on `device`, which may be the device it is on.
Tensor clone_to(const Tensor& source, Device device);
// `source` itself when it is on `device` already, else a clone there.
Tensor to_device(const Tensor& source, Device device);

// A copy under way: `tensor` may be read when `done` is, or by work given to the same stream later.
struct PendingCopy {
  Tensor tensor;
  std::shared_ptr<Event> done;
};
// clone_to in the order of `stream`, a stream of the source's or the target's device. The memory of both tensors is
// held until `done`; do not write the source before that. A transfer that fails late throws when `done` is waited for.
PendingCopy clone_to_async(const Tensor& source, Device device, Stream& stream);

}  // namespace tutti
