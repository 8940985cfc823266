// Device: names a device by its kind and index. The operations of devices are in tutti/runtime/device_backend.h.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace tutti {

enum class DeviceKind : uint8_t {
  cpu,
  mock,  // for tests: host memory that behaves like an accelerator, is poisoned and counted, and fails on request
  cuda,
};
inline constexpr int kNumDeviceKinds = static_cast<int>(DeviceKind::cuda) + 1;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int16_t index = 0;
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};

std::string to_string(Device device);  // "cpu", "mock:1"
std::ostream& operator<<(std::ostream& out, Device device);
Device device_from_string(std::string_view s);  // UsageError lists the kinds

}  // namespace tutti
