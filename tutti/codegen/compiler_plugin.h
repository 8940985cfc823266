// libtutti_llvm.so: installed next to the program or library that loads it, looked for and opened when the first kernel
// has to be compiled. A program that finds every kernel in its cache does without the file.
#pragma once

#include <string>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/kernel.h"
#include "tutti/codegen/target.h"

namespace tutti::codegen {

// TUTTI_LLVM_PLUGIN, else the first libtutti_llvm.so that find_plugin_file() finds (codegen/plugin_file.h).
// EnvironmentError listing the places when there is none.
std::string compiler_plugin_path();

// The relocatable object of `spec`. Opens the plugin on the first call. Any thread. UsageError for an operation that
// the dtype does not have, EnvironmentError when the plugin is missing, cannot be opened or belongs to another build of
// Tutti (codegen/generator_fingerprint.h).
std::string compile_object(const KernelSpec& spec, Target target);
std::string compile_object(const GemmKernelSpec& spec, Target target);
std::string compile_object(const AttentionKernelSpec& spec, Target target);

}  // namespace tutti::codegen
