// The part of the CUDA driver that symmetric memory uses: own declarations of its C interface, found at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tutti/symm/library.h"

namespace tutti::comm::symm {

struct CudaLocation {
  int32_t type = 1;  // a device
  int32_t id = 0;
};

struct CudaAllocationProperties {
  int32_t type = 1;          // pinned
  int32_t handle_types = 1;  // POSIX file descriptor
  CudaLocation location = {};
  void* win32_handle_metadata = nullptr;
  struct {
    uint8_t compression = 0;
    uint8_t gpu_direct_rdma = 0;
    uint16_t usage = 0;
    uint8_t reserved[4] = {};
  } flags = {};
};
static_assert(sizeof(CudaAllocationProperties) == 32);

struct CudaAccess {
  CudaLocation location = {};
  int32_t flags = 3;  // read and write
};

class CudaDriver {
 public:
  CudaDriver();
  // Opens the library, finds its functions and asks for its version; each is done once, and again after a failure.
  void open();
  // Throws EnvironmentError naming the call and what the driver says.
  void check(int result, const char* call) const;

  // Makes the device's primary context current on this thread while it lives, and puts back what was there.
  class Scope {
   public:
    Scope(CudaDriver& driver, int device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CudaDriver& driver_;
  };

  using Address = unsigned long long;
  using Memory = unsigned long long;
  int (*init)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*primary_context)(void**, int) = nullptr;
  int (*push_context)(void*) = nullptr;
  int (*pop_context)(void**) = nullptr;
  int (*granularity)(size_t*, const CudaAllocationProperties*, int) = nullptr;
  int (*create)(Memory*, size_t, const CudaAllocationProperties*, unsigned long long) = nullptr;
  int (*release)(Memory) = nullptr;
  int (*reserve)(Address*, size_t, size_t, Address, unsigned long long) = nullptr;
  int (*free_address)(Address, size_t) = nullptr;
  int (*map)(Address, size_t, size_t, Memory, unsigned long long) = nullptr;
  int (*unmap)(Address, size_t) = nullptr;
  int (*set_access)(Address, size_t, const CudaAccess*, size_t) = nullptr;
  int (*export_handle)(void*, Memory, int, unsigned long long) = nullptr;
  int (*import_handle)(Memory*, void*, int) = nullptr;
  int (*memset)(Address, unsigned char, size_t) = nullptr;
  int (*copy)(Address, Address, size_t) = nullptr;
  int (*synchronize)() = nullptr;
  int (*error_text)(int, const char**) = nullptr;

 private:
  std::mutex mutex_;
  Library library_;
  bool ready_ = false;
};

// The one of this process.
CudaDriver& cuda_driver();

}  // namespace tutti::comm::symm
