#include "tests/comm/support/nccl_ranks.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tutti/job/store/hash_store.h"

namespace tutti::comm::testing {
namespace {

template <class Function>
Function* hook(const char* name) {
  void* library = dlopen(TUTTI_BINARY_DIR "/libtutti_fake_nccl.so", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::shared_ptr<const NcclApi> fake_nccl() {
  static const auto api = [] {
    setenv("TUTTI_NCCL_LIB", TUTTI_BINARY_DIR "/libtutti_fake_nccl.so", 1);
    auto opened = NcclApi::open();
    unsetenv("TUTTI_NCCL_LIB");
    return opened;
  }();
  return api;
}

std::shared_ptr<const GpuApi> fake_gpu() {
  static const auto api = [] {
    setenv("TUTTI_CUDART_LIB", TUTTI_BINARY_DIR "/libtutti_fake_cudart.so", 1);
    auto opened = GpuApi::open();
    unsetenv("TUTTI_CUDART_LIB");
    return opened;
  }();
  return api;
}

void fail_nccl_call(int n, int result) { hook<void(int, int)>("fake_nccl_fail_call")(n, result); }
void break_nccl_rank(int rank, int result) { hook<void(int, int)>("fake_nccl_async_error")(rank, result); }

Tensor filled(int rank, DType dtype, int64_t n, const std::function<double(int64_t)>& value) {
  const auto size = static_cast<size_t>(itemsize(dtype));
  auto* data = new std::vector<char>(static_cast<size_t>(n) * size);
  for (int64_t i = 0; i < n; ++i) store_from_double(data->data() + static_cast<size_t>(i) * size, dtype, value(i));
  return Tensor::from_memory(data->data(), {n}, dtype, [data] { delete data; },
                             {DeviceKind::cuda, static_cast<int16_t>(rank)});
}

double value_at(const Tensor& t, int64_t i) {
  return load_as_double(static_cast<const char*>(t.raw_data()) + i * itemsize(t.dtype()), t.dtype());
}

void with_nccl_ranks(int size, const std::function<void(NcclBackend&)>& body,
                     const std::function<void(NcclOptions&)>& configure) {
  static std::atomic<int> next_group{0};
  const auto store = std::make_shared<HashStore>();
  const std::string group = "g" + std::to_string(next_group++);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        NcclOptions options{.group = group,
                            .store = store,
                            .rank = rank,
                            .size = size,
                            .device = {DeviceKind::cuda, static_cast<int16_t>(rank)},
                            .timeout = std::chrono::seconds(60),
                            .nccl = fake_nccl(),
                            .gpu = fake_gpu()};
        configure(options);
        NcclBackend backend(options);
        body(backend);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace tutti::comm::testing
