// The steps of attention as LLVM IR.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {

// Adds the exported function `name`, an AttentionEntry.
void emit_attention(llvm::Module& module, const AttentionKernelSpec& spec, CpuTarget target, const std::string& name);

}  // namespace tutti::codegen
