// A CUDA driver made of memory files, as far as symmetric memory calls it: "device" memory is host memory, and handles
// of allocations are descriptors, so that everything up to passing them between processes really happens.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {
constexpr size_t kGranularity = 64 << 10;

int environment(const char* name, int missing) {
  const char* text = std::getenv(name);
  return text == nullptr ? missing : std::atoi(text);
}
}  // namespace

extern "C" {
int cuInit(unsigned) { return environment("FAKE_CUDA_INIT_RESULT", 0); }
int cuDriverGetVersion(int* version) {
  *version = environment("FAKE_CUDA_VERSION", 12040);
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : "out of memory";
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return index < 2 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = context;
  return 0;
}
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuMemGetAllocationGranularity(size_t* granularity, const void*, int) {
  *granularity = kGranularity;
  return 0;
}
int cuMemCreate(unsigned long long* handle, size_t size, const void*, unsigned long long) {
  if (size % kGranularity != 0 || size > (size_t{1} << 32)) return 2;
  const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return 2;
  *handle = static_cast<unsigned long long>(fd);
  return 0;
}
int cuMemRelease(unsigned long long handle) { return close(static_cast<int>(handle)); }
int cuMemAddressReserve(unsigned long long* address, size_t size, size_t, unsigned long long, unsigned long long) {
  void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *address = reinterpret_cast<unsigned long long>(range);
  return range == MAP_FAILED ? 2 : 0;
}
int cuMemAddressFree(unsigned long long address, size_t size) { return munmap(reinterpret_cast<void*>(address), size); }
int cuMemMap(unsigned long long address, size_t size, size_t, unsigned long long handle, unsigned long long) {
  return mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0) ==
                 MAP_FAILED
             ? 2
             : 0;
}
int cuMemUnmap(unsigned long long address, size_t size) {
  return mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                 MAP_FAILED
             ? 2
             : 0;
}
int cuMemSetAccess(unsigned long long address, size_t size, const void*, size_t) {
  return mprotect(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE);
}
int cuMemExportToShareableHandle(void* handle, unsigned long long memory, int, unsigned long long) {
  const int fd = dup(static_cast<int>(memory));
  std::memcpy(handle, &fd, sizeof fd);
  return fd < 0 ? 2 : 0;
}
int cuMemImportFromShareableHandle(unsigned long long* memory, void* handle, int) {
  const int fd = dup(static_cast<int>(reinterpret_cast<intptr_t>(handle)));
  *memory = static_cast<unsigned long long>(fd);
  return fd < 0 ? 2 : 0;
}
int cuMemsetD8_v2(unsigned long long address, unsigned char value, size_t size) {
  std::memset(reinterpret_cast<void*>(address), value, size);
  return 0;
}
int cuMemcpy(unsigned long long target, unsigned long long source, size_t size) {
  std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size);
  return 0;
}
int cuCtxSynchronize() { return 0; }
}
