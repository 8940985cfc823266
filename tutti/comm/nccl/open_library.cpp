#include "tutti/comm/nccl/open_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "tutti/core/error.h"

namespace tutti::comm {

OpenLibrary::OpenLibrary(std::string purpose, const std::string& variable, const std::vector<std::string>& names)
    : purpose_(std::move(purpose)), variable_(variable) {
  const char* chosen = std::getenv(variable.c_str());
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  std::string tried;
  for (const std::string& name : is_chosen ? std::vector<std::string>{chosen} : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = name;
      return;
    }
    const char* reason = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason != nullptr ? reason : name);
  }
  throw EnvironmentError(fmt::format(
      "{} needs a library that cannot be opened: {}. {} names the file; without it {} tried", purpose_, tried, variable,
      names.size() == 1 ? names[0] + " is" : fmt::format("{} are", fmt::join(names, ", "))));
}

void* OpenLibrary::symbol(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (void* address = dlsym(handle_, name.c_str())) return address;
  }
  throw EnvironmentError(fmt::format("{}: {} has no function {}; it is too old or another library. {} names the file",
                                     purpose_, path_, fmt::join(names, " or "), variable_));
}

}  // namespace tutti::comm
