#include "tutti/symm/cuda_driver.h"

namespace tutti::comm::symm {
namespace {

constexpr int kRequiredVersion = 11000;  // 1000 x major + 10 x minor: descriptors of virtual memory work well from here

}  // namespace

CudaDriver::CudaDriver() : library_("cuda", "TUTTI_SYMM_CUDA_LIB", {"libcuda.so.1", "libcuda.so"}) {}

void CudaDriver::open() {
  const std::lock_guard lock(mutex_);
  if (ready_) return;
  library_.load(init, "cuInit");
  library_.load(driver_version, "cuDriverGetVersion");
  library_.load(error_text, "cuGetErrorString");
  int version = 0;
  check(driver_version(&version), "cuDriverGetVersion");
  if (version < kRequiredVersion) {
    throw LibraryError(fmt::format("symmetric memory backend cuda: {} is version {}; {} or newer is required",
                                   library_.path(), version_text(version / 1000, version % 1000 / 10),
                                   version_text(kRequiredVersion / 1000, kRequiredVersion % 1000 / 10)));
  }
  library_.load(device_get, "cuDeviceGet");
  library_.load(primary_context, "cuDevicePrimaryCtxRetain");
  library_.load(push_context, "cuCtxPushCurrent_v2");
  library_.load(pop_context, "cuCtxPopCurrent_v2");
  library_.load(granularity, "cuMemGetAllocationGranularity");
  library_.load(create, "cuMemCreate");
  library_.load(release, "cuMemRelease");
  library_.load(reserve, "cuMemAddressReserve");
  library_.load(free_address, "cuMemAddressFree");
  library_.load(map, "cuMemMap");
  library_.load(unmap, "cuMemUnmap");
  library_.load(set_access, "cuMemSetAccess");
  library_.load(export_handle, "cuMemExportToShareableHandle");
  library_.load(import_handle, "cuMemImportFromShareableHandle");
  library_.load(memset, "cuMemsetD8_v2");
  library_.load(copy, "cuMemcpy");
  library_.load(synchronize, "cuCtxSynchronize");
  check(init(0), "cuInit");
  ready_ = true;
}

void CudaDriver::check(int result, const char* call) const {
  if (result == 0) return;
  const char* text = nullptr;
  if (error_text != nullptr) error_text(result, &text);
  throw EnvironmentError(fmt::format("symmetric memory backend cuda: {} failed: {} ({})", call,
                                     text != nullptr ? text : "unknown error", result));
}

CudaDriver::Scope::Scope(CudaDriver& driver, int index) : driver_(driver) {
  int device = 0;
  driver.check(driver.device_get(&device, index), "cuDeviceGet");
  void* context = nullptr;
  driver.check(driver.primary_context(&context, device), "cuDevicePrimaryCtxRetain");
  driver.check(driver.push_context(context), "cuCtxPushCurrent");
}

CudaDriver::Scope::~Scope() {
  void* context = nullptr;
  driver_.pop_context(&context);
}

CudaDriver& cuda_driver() {
  static CudaDriver& driver = *new CudaDriver;  // outlives memory in static objects
  return driver;
}

}  // namespace tutti::comm::symm
