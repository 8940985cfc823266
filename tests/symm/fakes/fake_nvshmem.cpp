// An NVSHMEM of one rank.
#include <cstdlib>
#include <cstring>

namespace {
bool g_initialised = false;
}

extern "C" {
void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  const char* text = std::getenv("FAKE_NVSHMEM_MAJOR");
  *major = text == nullptr ? 3 : std::atoi(text);
  *minor = 2;
  *patch = 5;
}
int nvshmemx_get_uniqueid(void* id) {
  std::memset(static_cast<char*>(id) + 4, 7, 124);
  return 0;
}
int nvshmemx_set_attr_uniqueid_args(int rank, int size, void*, void*) { return rank == 0 && size == 1 ? 0 : 7; }
int nvshmemx_hostlib_init_attr(unsigned flags, void*) {
  if (std::getenv("FAKE_NVSHMEM_INIT_FAILS") != nullptr) return 6;
  g_initialised = flags == 8;
  return g_initialised ? 0 : 6;
}
void* nvshmem_malloc(size_t size) {
  if (!g_initialised || size > (size_t{1} << 30)) return nullptr;
  void* memory = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (memory != nullptr) std::memset(memory, 0, size);
  return memory;
}
void nvshmem_free(void* memory) { std::free(memory); }
void* nvshmem_ptr(const void* memory, int) { return const_cast<void*>(memory); }
void nvshmem_barrier_all() {}
}
