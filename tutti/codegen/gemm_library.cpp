#include "tutti/codegen/gemm_library.h"

#include <dlfcn.h>

#include <vector>

#include "tutti/codegen/plugin_file.h"

namespace tutti::codegen {
namespace {

// Null: it was not part of the build, or the library behind it is not on this machine.
const GemmLibrary* open_library(const char* file_name) {
  const PluginSearch search = find_plugin_file(file_name);
  void* const opened = search.path ? dlopen(search.path->c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (opened == nullptr) return nullptr;
  const auto function = reinterpret_cast<GemmLibraryFunction>(dlsym(opened, kGemmLibraryFunctionName));
  return function ? function() : nullptr;
}

}  // namespace

std::span<const GemmLibrary* const> gemm_libraries() {
  static const std::vector<const GemmLibrary*> libraries = [] {
    std::vector<const GemmLibrary*> found;
    for (const char* file_name : {"libtutti_onednn.so", "libtutti_openblas.so"}) {
      if (const GemmLibrary* library = open_library(file_name)) found.push_back(library);
    }
    return found;
  }();
  return libraries;
}

}  // namespace tutti::codegen
