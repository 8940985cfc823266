#include "tutti/symm/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "tutti/job/distributed.h"

namespace tutti::comm::symm {
namespace {

using Backends = std::map<std::string, std::unique_ptr<Backend>, std::less<>>;

// All names of this version of Tutti, in alphabetical order.
constexpr const char* kNames[] = {"cuda", "native", "nccl", "nvshmem", "threads"};

const Backends& backends() {
  static const Backends& all = *[] {
    auto* made = new Backends;  // outlives tensors in static objects
    for (const BackendEngine* engine : backend_engines()) made->emplace(engine->name, engine->make());
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

std::vector<std::string> backend_names() { return {std::begin(kNames), std::end(kNames)}; }

Backend& find_backend(std::string_view name) {
  const auto found = backends().find(name);
  if (found != backends().end()) return *found->second;
  const auto names = backend_names();
  if (std::find(names.begin(), names.end(), name) != names.end())
    throw_left_out(fmt::format("symmetric memory backend {}", name));
  throw UsageError(unknown_name_message("symmetric memory backend", name, names));
}

std::string default_backend_name() {
  const char* name = std::getenv("TUTTI_SYMM_BACKEND");
  if (name == nullptr || *name == '\0') return backends().contains("native") ? "native" : "threads";
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
