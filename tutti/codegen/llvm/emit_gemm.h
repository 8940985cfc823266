// The tile kernels of GEMM as LLVM IR.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/kernel.h"

namespace tutti::codegen {

// Adds the exported function `name`, a GemmTileEntry.
void emit_gemm_tile(llvm::Module& module, const GemmKernelSpec& spec, CpuTarget target, const std::string& name);

}  // namespace tutti::codegen
