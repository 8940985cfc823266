// libtutti_llvm.so: installed next to the program or library that loads it, opened when the first kernel has to be
// compiled.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

// TUTTI_LLVM_PLUGIN, else the first libtutti_llvm.so that find_plugin_file() finds (codegen/plugin_file.h).
// EnvironmentError listing the places when there is none.
std::string compiler_plugin_path();

// Hash of the plugin's bytes: code made by another build of the generator is not taken from the cache.
uint64_t compiler_fingerprint();

// The relocatable object of `spec`. Opens the plugin on the first call. Any thread. UsageError for an operation that
// the dtype does not have, EnvironmentError when the plugin cannot be opened.
std::string compile_object(const KernelSpec& spec, CpuTarget target);
std::string compile_object(const GemmKernelSpec& spec, CpuTarget target);
std::string compile_object(const AttentionKernelSpec& spec, CpuTarget target);

}  // namespace tutti::codegen
