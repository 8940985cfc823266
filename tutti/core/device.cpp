#include "tutti/core/device.h"

#include <charconv>
#include <ostream>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {

static const std::vector<std::string>& kind_names() {
  static const std::vector<std::string> names = {"cpu", "mock", "cuda"};
  return names;
}

std::string to_string(Device device) {
  const std::string& kind = kind_names()[static_cast<size_t>(device.kind)];
  return device.kind == DeviceKind::cpu && device.index == 0 ? kind : fmt::format("{}:{}", kind, device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

Device device_from_string(std::string_view s) {
  const size_t colon = s.find(':');
  const std::string_view kind = s.substr(0, colon);
  Device device;
  if (colon != std::string_view::npos) {
    const std::string_view digits = s.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    TUTTI_CHECK(error == std::errc{} && end == digits.data() + digits.size() && device.index >= 0,
                "device '{}': '{}' is not a device index; write e.g. 'mock:1'", s, digits);
  }
  for (size_t i = 0; i < kind_names().size(); ++i) {
    if (kind_names()[i] == kind) {
      device.kind = static_cast<DeviceKind>(i);
      return device;
    }
  }
  throw UsageError(unknown_name_message("device kind", kind, kind_names()));
}

}  // namespace tutti
