#include "tutti/runtime/device_backend.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tutti/core/error.h"

namespace tutti {
namespace {

std::array<std::atomic<DeviceBackend*>, 3>& backends() {
  static std::array<std::atomic<DeviceBackend*>, 3> table{};
  return table;
}

}  // namespace

DeviceBackend& device_backend(Device device) {
  DeviceBackend* backend = backends()[static_cast<size_t>(device.kind)].load();
  TUTTI_CHECK(backend != nullptr,
              "no device allocator is registered for {}; this build knows the cpu, and mock in tests", to_string(device));
  TUTTI_CHECK(device.index < backend->device_count(), "device {} does not exist; there are {} of its kind",
              to_string(device), backend->device_count());
  return *backend;
}

void register_device_backend(DeviceKind kind, DeviceBackend* backend) {
  TUTTI_CHECK(kind != DeviceKind::cpu, "the cpu is built in; register a backend for another device kind");
  backends()[static_cast<size_t>(kind)] = backend;
}

Stream& default_stream(Device device) {
  static std::mutex mutex;
  static std::map<std::pair<DeviceKind, int>, std::unique_ptr<Stream>> streams;
  std::lock_guard lock(mutex);
  std::unique_ptr<Stream>& stream = streams[{device.kind, device.index}];
  if (!stream) stream = std::make_unique<Stream>(device);
  return *stream;
}

}  // namespace tutti
