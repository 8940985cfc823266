#include "tutti/symm/library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tutti::comm::symm {

Library::Library(std::string backend, std::string variable, std::vector<std::string> names)
    : backend_(std::move(backend)), variable_(std::move(variable)), names_(std::move(names)) {}

void Library::open() {
  if (handle_ != nullptr) return;
  const char* chosen = std::getenv(variable_.c_str());
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  const std::vector<std::string> names = is_chosen ? std::vector<std::string>{chosen} : names_;
  std::string tried;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = name;
      return;
    }
    const char* reason = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason != nullptr ? reason : name);
  }
  throw LibraryError(fmt::format("symmetric memory backend {} needs its library: {}. Install it or name the file in {}",
                                 backend_, tried, variable_));
}

void* Library::symbol(const char* name) {
  open();
  void* address = dlsym(handle_, name);
  if (address == nullptr) {
    throw LibraryError(fmt::format(
        "symmetric memory backend {}: {} has no function {}; it is too old or another library", backend_, path_, name));
  }
  return address;
}

std::string version_text(int major, int minor, int patch) {
  return patch < 0 ? fmt::format("{}.{}", major, minor) : fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace tutti::comm::symm
