#include "tutti/codegen/compiler_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/plugin.h"
#include "tutti/codegen/plugin_file.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "libtutti_llvm.so";

std::string find_plugin() {
  if (const char* path = std::getenv("TUTTI_LLVM_PLUGIN"); path && *path) {
    TUTTI_CHECK_ENV(fs::exists(path), "TUTTI_LLVM_PLUGIN={}: no such file", path);
    return path;
  }
  const PluginSearch search = find_plugin_file(kFileName);
  if (search.path) return *search.path;
  throw EnvironmentError(
      fmt::format("a kernel must be compiled, but {} is in none of: {}. Install it beside the program or set "
                  "TUTTI_LLVM_PLUGIN to it",
                  kFileName, search.places));
}

void* plugin() {
  static void* const library = [] {
    const std::string& path = compiler_plugin_path();
    void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    TUTTI_CHECK_ENV(opened, "cannot open the code generator {}: {}; is libLLVM 19 installed?", path, dlerror());
    return opened;
  }();
  return library;
}

template <class Function>
Function find_function(const char* name) {
  auto* found = reinterpret_cast<Function>(dlsym(plugin(), name));
  TUTTI_CHECK_ENV(found, "{} is not a code generator of this Tutti: it has no {}", compiler_plugin_path(), name);
  return found;
}

template <class Function, class Spec>
std::string call_compiler(Function compile, const Spec& spec, CpuTarget target, const std::string& name) {
  std::string bytes;
  const CompileSink sink = [](void* context, const char* data, size_t nbytes) {
    static_cast<std::string*>(context)->assign(data, nbytes);
  };
  switch (compile(&spec, target, sink, &bytes)) {
    case CompileStatus::object:
      return bytes;
    case CompileStatus::usage_error:
      throw UsageError(bytes);
    case CompileStatus::internal_error:
      break;
  }
  throw InternalError(fmt::format("kernel '{}': {}", name, bytes));
}

}  // namespace

std::string compiler_plugin_path() {
  static const std::string path = find_plugin();
  return path;
}

uint64_t compiler_fingerprint() {
  static const uint64_t fingerprint = [] {
    const std::string path = compiler_plugin_path();
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    TUTTI_CHECK_ENV(!bytes.empty(), "cannot read the code generator {}", path);
    return hash64(bytes);
  }();
  return fingerprint;
}

std::string compile_object(const KernelSpec& spec, CpuTarget target) {
  static const auto compile = find_function<CompileFunction>(kCompileFunctionName);
  return call_compiler(compile, spec, target, spec.name);
}

std::string compile_object(const GemmKernelSpec& spec, CpuTarget target) {
  static const auto compile = find_function<CompileGemmFunction>(kCompileGemmFunctionName);
  return call_compiler(compile, spec, target, spec.name());
}

std::string compile_object(const AttentionKernelSpec& spec, CpuTarget target) {
  static const auto compile = find_function<CompileAttentionFunction>(kCompileAttentionFunctionName);
  return call_compiler(compile, spec, target, spec.name());
}

}  // namespace tutti::codegen
