// The backends of groups for tensors on devices, by name.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>

#include "tutti/comm/backend.h"
#include "tutti/comm/transports.h"
#include "tutti/core/device.h"

namespace tutti::comm {

// One that this build has; rows as those of transports (transports.h).
struct DeviceBackend {
  const char* name;
  // `device` is this rank's. Blocks until all ranks of the group have joined.
  std::shared_ptr<Backend> (*make)(const GroupSeat& seat, Device device, std::chrono::milliseconds timeout);
};
std::span<const DeviceBackend* const> device_backends();
#define TUTTI_DEVICE_BACKEND(name, make)            \
  extern const DeviceBackend device_backend_##name; \
  constinit const DeviceBackend device_backend_##name { #name, make }

// UsageError when it is not part of this build.
std::shared_ptr<Backend> make_device_backend(std::string_view name, const GroupSeat& seat, Device device,
                                             std::chrono::milliseconds timeout);

}  // namespace tutti::comm
