// The rules that every KernelSpec must satisfy before the code generator sees it.
#pragma once

#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

// UsageError naming the kernel and the node or operand that breaks a rule.
void check_kernel(const KernelSpec& spec);

}  // namespace tutti::codegen
