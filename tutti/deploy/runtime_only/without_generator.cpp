// What the runtime of packages has in the place of the code generator and of the products of other libraries, which
// the full library opens when it first needs them: the runtime opens no library, and a package has all of its kernels.
#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/gemm/library.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

[[noreturn]] void refuse(const std::string& name) {
  throw InternalError(fmt::format(
      "the kernel {} must be compiled, and the runtime of packages has no code generator; please report this with the "
      "package",
      name));
}

}  // namespace

std::string compile_object(const KernelSpec& spec, Target) { refuse(spec.name); }
std::string compile_object(const GemmKernelSpec& spec, Target) { refuse(spec.name()); }
std::string compile_object(const AttentionKernelSpec& spec, Target) { refuse(spec.name()); }

std::span<const GemmLibrary* const> gemm_libraries() { return {}; }
std::span<const std::string> closed_gemm_libraries() { return {}; }

}  // namespace tutti::codegen
