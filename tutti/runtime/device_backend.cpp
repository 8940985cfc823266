#include "tutti/runtime/device_backend.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {
namespace {

std::array<std::atomic<DeviceBackend*>, kNumDeviceKinds>& backends() {
  static std::array<std::atomic<DeviceBackend*>, kNumDeviceKinds> table{};
  return table;
}

struct DefaultStreams {
  std::mutex mutex;
  std::map<std::pair<DeviceKind, int>, std::unique_ptr<Stream>> streams;
};

DefaultStreams& default_streams() {
  static auto* all = new DefaultStreams;  // outlives every static that holds a tensor
  return *all;
}

// Apart from the others: every launch on the cpu asks for it.
Stream& cpu_stream() {
  static auto* stream = new Stream(kCpu);
  return *stream;
}

thread_local const StreamScope* innermost_scope = nullptr;

}  // namespace

DeviceBackend& device_backend(Device device) {
  DeviceBackend* backend = backends()[static_cast<size_t>(device.kind)].load();
  TUTTI_CHECK(backend != nullptr,
              "no device allocator is registered for {}; this build knows the cpu, and mock in tests",
              to_string(device));
  TUTTI_CHECK(device.index >= 0 && device.index < backend->device_count(),
              "device {} does not exist; there are {} of its kind", to_string(device), backend->device_count());
  return *backend;
}

void register_device_backend(DeviceKind kind, DeviceBackend* backend) {
  TUTTI_CHECK(kind != DeviceKind::cpu, "the cpu is built in; register a backend for another device kind");
  DefaultStreams& all = default_streams();
  std::vector<std::unique_ptr<Stream>> ended;  // outside the lock: they may have work to finish
  {
    std::lock_guard lock(all.mutex);
    for (auto& [key, stream] : all.streams) {
      if (key.first == kind) ended.push_back(std::move(stream));
    }
    std::erase_if(all.streams, [kind](const auto& entry) { return entry.first.first == kind; });
  }
  ended.clear();
  backends()[static_cast<size_t>(kind)] = backend;
}

Stream& default_stream(Device device) {
  if (device.kind == DeviceKind::cpu) return cpu_stream();
  DefaultStreams& all = default_streams();
  std::lock_guard lock(all.mutex);
  std::unique_ptr<Stream>& stream = all.streams[{device.kind, device.index}];
  if (!stream) stream = device_backend(device).make_stream(device.index);
  return *stream;
}

Stream& current_stream(Device device) {
  for (const StreamScope* scope = innermost_scope; scope != nullptr; scope = scope->outer_) {
    if (scope->stream_.device() == device) return scope->stream_;
  }
  return default_stream(device);
}

StreamScope::StreamScope(Stream& stream) : stream_(stream), outer_(std::exchange(innermost_scope, this)) {}
StreamScope::~StreamScope() { innermost_scope = outer_; }

}  // namespace tutti
