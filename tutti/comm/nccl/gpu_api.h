// The few functions of the CUDA (or HIP) runtime that collectives on a GPU need, found at run time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tutti/comm/nccl/nccl_api.h"

namespace tutti::comm {

struct GpuApi {
  using Stream = NcclApi::Stream;
  using Event = struct CudaEvent*;  // cudaEvent_t or hipEvent_t
  static constexpr int kSuccess = 0, kNotReady = 600;
  static constexpr unsigned kNonBlockingStream = 1, kEventWithoutTiming = 2;
  static constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // attributes of a CUDA device

  int (*set_device)(int);
  int (*get_device)(int*);
  int (*device_get_attribute)(int*, int attribute, int device);
  int (*stream_create_with_flags)(Stream*, unsigned flags);
  int (*stream_destroy)(Stream);
  int (*stream_wait_event)(Stream, Event, unsigned flags);
  int (*event_create_with_flags)(Event*, unsigned flags);
  int (*event_destroy)(Event);
  int (*event_record)(Event, Stream);
  int (*event_query)(Event);
  int (*malloc)(void**, size_t);
  int (*free)(void*);
  const char* (*get_error_string)(int);

  std::string path;
  bool is_hip = false;

  // Opens TUTTI_CUDART_LIB, else libcudart.so.13, .12, then HIP's libamdhip64.so. EnvironmentError when that fails.
  static std::shared_ptr<const GpuApi> open();

  // EnvironmentError naming `call` and the driver's reason.
  void check(int result, const char* call) const;
  // major * 10 + minor; 0 for HIP.
  int architecture(int device) const;

  // Makes `device` current on this thread while it lives, because streams, events and calls of NCCL use the current
  // device.
  class OnDevice {
   public:
    OnDevice(const GpuApi& api, int device);
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

   private:
    const GpuApi& api_;
    int previous_ = 0;
  };
};

}  // namespace tutti::comm
