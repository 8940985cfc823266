#include "tutti/codegen/kernel_requests.h"

#include <utility>

#include "tutti/core/error.h"

namespace tutti::codegen {

KernelRequests::KernelRequests() : previous_(std::exchange(current, this)) {}
KernelRequests::~KernelRequests() { current = previous_; }

void KernelRequests::add(const KernelSpec& spec) { specs_.emplace(spec.key(), spec); }

void NoNewKernels::refuse(const std::string& name, Target target) {
  if (!InheritedFlags::has(InheritedFlag::no_new_kernels)) return;
  throw InternalError(fmt::format(
      "the kernel {} for {} is needed, and the package that runs does not have it; please report this with the package",
      name, name_of(target)));
}

}  // namespace tutti::codegen
