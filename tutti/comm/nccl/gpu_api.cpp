#include "tutti/comm/nccl/gpu_api.h"

#include "tutti/comm/nccl/open_library.h"
#include "tutti/core/error.h"

namespace tutti::comm {

std::shared_ptr<const GpuApi> GpuApi::open() {
  const OpenLibrary library("backend nccl", "TUTTI_CUDART_LIB",
                            {"libcudart.so.13", "libcudart.so.12", "libamdhip64.so"});
  auto api = std::make_shared<GpuApi>();
  api->path = library.path();
  api->is_hip = api->path.find("hip") != std::string::npos;
  // HIP has the same functions under its own prefix.
  const auto load = [&](auto*& function, const std::string& name) {
    library.load(function, {"cuda" + name, "hip" + name});
  };
  load(api->set_device, "SetDevice");
  load(api->get_device, "GetDevice");
  load(api->device_get_attribute, "DeviceGetAttribute");
  load(api->stream_create_with_flags, "StreamCreateWithFlags");
  load(api->stream_destroy, "StreamDestroy");
  load(api->stream_wait_event, "StreamWaitEvent");
  load(api->event_create_with_flags, "EventCreateWithFlags");
  load(api->event_destroy, "EventDestroy");
  load(api->event_record, "EventRecord");
  load(api->event_query, "EventQuery");
  load(api->malloc, "Malloc");
  load(api->free, "Free");
  load(api->get_error_string, "GetErrorString");
  return api;
}

void GpuApi::check(int result, const char* call) const {
  TUTTI_CHECK_ENV(result == kSuccess, "backend nccl: {}{} failed: {} ({})", is_hip ? "hip" : "cuda", call,
                  get_error_string(result), result);
}

int GpuApi::architecture(int device) const {
  if (is_hip) return 0;
  int major = 0, minor = 0;
  check(device_get_attribute(&major, kCapabilityMajor, device), "DeviceGetAttribute");
  check(device_get_attribute(&minor, kCapabilityMinor, device), "DeviceGetAttribute");
  return major * 10 + minor;
}

GpuApi::OnDevice::OnDevice(const GpuApi& api, int device) : api_(api) {
  api_.check(api_.get_device(&previous_), "GetDevice");
  if (previous_ != device) api_.check(api_.set_device(device), "SetDevice");
}

GpuApi::OnDevice::~OnDevice() { api_.set_device(previous_); }

}  // namespace tutti::comm
