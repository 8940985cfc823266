// Devices as words: a kind and an index. What a device can do lives in tutti/runtime/device_backend.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

enum class DeviceKind : uint8_t {
  cpu,
  mock,  // host memory that behaves like an accelerator: poisoned, counted, failing on request; for tests
  cuda,
};

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int16_t index = 0;
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};

std::string to_string(Device device);           // "cpu", "mock:1"
Device device_from_string(std::string_view s);  // UsageError lists the kinds

}  // namespace tutti
