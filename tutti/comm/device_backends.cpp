#include "tutti/comm/device_backends.h"

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/job/distributed.h"

namespace tutti::comm {

std::shared_ptr<Backend> make_device_backend(std::string_view name, const GroupSeat& seat, Device device,
                                             std::chrono::milliseconds timeout) {
  for (const DeviceBackend* backend : device_backends()) {
    if (backend->name == name) return backend->make(seat, device, timeout);
  }
  TUTTI_CHECK(!why_not_distributed().empty(),
              "transport {} is not part of this build, whose groups take tensors on cpu", name);
  throw_left_out(fmt::format("transport {}", name));
}

}  // namespace tutti::comm
