#include "tutti/codegen/gemm/library.h"

#include <dlfcn.h>

#include <vector>

#include "tutti/codegen/plugin_file.h"

namespace tutti::codegen {
namespace {

struct Libraries {
  std::vector<const GemmLibrary*> open;
  std::vector<std::string> closed;

  // A plugin that does not exist was not part of the build.
  void add(const char* file_name) {
    const PluginSearch search = find_plugin_file(file_name);
    if (!search.path) return;
    void* const opened = dlopen(search.path->c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const function = opened ? dlsym(opened, kGemmLibraryFunctionName) : nullptr;
    if (function) open.push_back(reinterpret_cast<GemmLibraryFunction>(function)());
    else closed.emplace_back(dlerror());
  }
};

const Libraries& libraries() {
  static const Libraries all = [] {
    Libraries found;
    for (const char* file_name : {"libtutti_onednn.so", "libtutti_openblas.so"}) found.add(file_name);
    return found;
  }();
  return all;
}

}  // namespace

std::span<const GemmLibrary* const> gemm_libraries() { return libraries().open; }
std::span<const std::string> closed_gemm_libraries() { return libraries().closed; }

}  // namespace tutti::codegen
