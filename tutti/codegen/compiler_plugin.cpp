#include "tutti/codegen/compiler_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "tutti/codegen/generator_fingerprint.h"
#include "tutti/codegen/llvm/plugin.h"
#include "tutti/codegen/plugin_file.h"
#include "tutti/codegen/target.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "libtutti_llvm.so";

std::string find_plugin() {
  if (const char* path = std::getenv("TUTTI_LLVM_PLUGIN"); path && *path) {
    TUTTI_CHECK_ENV(fs::exists(path),
                    "a kernel must be compiled, but TUTTI_LLVM_PLUGIN={}: no such file. Set it to the {} of the "
                    "program's build, or unset it to have that looked for beside the program",
                    path, kFileName);
    return path;
  }
  const PluginSearch search = find_plugin_file(kFileName);
  if (search.path) return *search.path;
  throw EnvironmentError(
      fmt::format("a kernel must be compiled, but {} is in none of: {}. Install it beside the program or set "
                  "TUTTI_LLVM_PLUGIN to it",
                  kFileName, search.places));
}

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <class Function>
Function find_function(void* library, const char* name) {
  auto* found = reinterpret_cast<Function>(dlsym(library, name));
  TUTTI_CHECK_ENV(found,
                  "{} is not a code generator of this Tutti: it has no {}. Build it together with the program that "
                  "opens it, or set TUTTI_LLVM_PLUGIN to one that was",
                  compiler_plugin_path(), name);
  return found;
}

// Descriptions of kernels are handed over as they lie in memory, and what comes back is kept under the program's
// fingerprint: both only hold for the generator that the program was built with.
void check_fingerprint(void* library) {
  const uint64_t own = generator_fingerprint(),
                 other = find_function<FingerprintFunction>(library, kFingerprintFunctionName)();
  TUTTI_CHECK_ENV(own == other,
                  "the code generator {} belongs to another build: its fingerprint is {:016x}, the program's is "
                  "{:016x}. Build and install both together, or set TUTTI_LLVM_PLUGIN to the libtutti_llvm.so of the "
                  "program's build",
                  compiler_plugin_path(), other, own);
}

void* plugin() {
  static void* const library = [] {
    const std::string path = compiler_plugin_path();
    Library opened(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    TUTTI_CHECK_ENV(opened != nullptr, "cannot open the code generator {}: {}; is libLLVM 19 installed?", path,
                    dlerror());
    check_fingerprint(opened.get());
    return opened.release();  // threads may compile until the process ends
  }();
  return library;
}

// The library generates code for the cpu. It is not opened for another device.
template <class Function, class Spec>
std::string call_compiler(const char* function, const Spec& spec, Target target, const std::string& name) {
  const CpuTarget instructions = cpu_target_of(target);
  static const auto compile = find_function<Function>(plugin(), function);
  std::string bytes;
  const CompileSink sink = [](void* context, const char* data, size_t nbytes) {
    static_cast<std::string*>(context)->assign(data, nbytes);
  };
  switch (compile(&spec, instructions, sink, &bytes)) {
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

std::string compile_object(const KernelSpec& spec, Target target) {
  return call_compiler<CompileFunction>(kCompileFunctionName, spec, target, spec.name);
}

std::string compile_object(const GemmKernelSpec& spec, Target target) {
  return call_compiler<CompileGemmFunction>(kCompileGemmFunctionName, spec, target, spec.name());
}

std::string compile_object(const AttentionKernelSpec& spec, Target target) {
  return call_compiler<CompileAttentionFunction>(kCompileAttentionFunctionName, spec, target, spec.name());
}

}  // namespace tutti::codegen
