// From a module to a relocatable object: target, optimization passes, code generation.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

// Says for which processors a function is, before its instructions are emitted; no loop of it becomes a call.
void make_for(llvm::Function& function, CpuTarget target);
// Whether it is for processors with registers of 512 bits.
bool is_for_wide_registers(const llvm::Function& function);

// The bytes of an ELF object: position-independent, referring to nothing outside itself. InternalError when the module
// is not well formed.
std::string to_machine_code(llvm::Module& module, CpuTarget target);

}  // namespace tutti::codegen
