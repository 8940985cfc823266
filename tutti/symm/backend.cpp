#include "tutti/symm/backend.h"

#include <cstdlib>
#include <cstring>
#include <map>

#include "tutti/symm/backends.h"

namespace tutti::comm::symm {
namespace {

using Backends = std::map<std::string, std::unique_ptr<Backend>, std::less<>>;

const Backends& backends() {
  static const Backends& all = *[] {
    auto* made = new Backends;  // outlives tensors in static objects
    for (auto* make : {make_cuda_backend, make_native_backend, make_nccl_backend, make_nvshmem_backend, make_threads_backend}) {
      auto backend = make();
      std::string name = backend->traits().name;
      made->emplace(std::move(name), std::move(backend));
    }
    return made;
  }();
  return all;
}

}  // namespace

[[noreturn]] void Backend::unsupported(std::string_view what) const {
  throw UsageError(fmt::format("symmetric memory backend {} has no {}; native and threads have", traits().name, what));
}

void Backend::barrier(const SymmGroup&, int, Moment) { unsupported("barrier of its own"); }
void Backend::signal(const SymmGroup&, int, int, Moment) { unsupported("signals of its own"); }
void Backend::wait_signal(const SymmGroup&, int, int, Moment) { unsupported("signals of its own"); }

void Backend::copy(void* target, const void* source, int64_t nbytes, Device) {
  std::memcpy(target, source, static_cast<size_t>(nbytes));
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const auto& [name, backend] : backends()) names.push_back(name);
  return names;
}

Backend& find_backend(std::string_view name) {
  const auto found = backends().find(name);
  if (found == backends().end()) {
    throw UsageError(unknown_name_message("symmetric memory backend", name, backend_names()));
  }
  return *found->second;
}

std::string default_backend_name() {
  const char* name = std::getenv("TUTTI_SYMM_BACKEND");
  if (name == nullptr || *name == '\0') return usual_backend_name();
  try {
    return find_backend(name).traits().name;
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("TUTTI_SYMM_BACKEND: {}", error.what()));
  }
}

bool has_multicast_support(Device device) noexcept {
  try {
    for (const auto& [name, backend] : backends()) {
      if (backend->traits().device == device.kind && backend->traits().multicast) return true;
    }
  } catch (...) {  // NOLINT: an answer is promised
  }
  return false;
}

}  // namespace tutti::comm::symm
