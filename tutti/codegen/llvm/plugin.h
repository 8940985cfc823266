// The border of libtutti_llvm.so: C functions, found by name. Exceptions and allocations stay on their side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

// Receives the result's bytes; called once.
using CompileSink = void (*)(void* context, const char* data, size_t nbytes);

enum class CompileStatus : int {
  object,          // the sink got a relocatable ELF object that defines kKernelEntryName
  usage_error,     // the sink got the text of an error the caller of the kernel can fix
  internal_error,  // the sink got the text of our own error
};

// May be called from several threads at once.
using CompileFunction = CompileStatus (*)(const KernelSpec* spec, CpuTarget target, CompileSink sink, void* context);

using CompileGemmFunction = CompileStatus (*)(const GemmKernelSpec* spec, CpuTarget target, CompileSink sink,
                                              void* context);

using CompileAttentionFunction = CompileStatus (*)(const AttentionKernelSpec* spec, CpuTarget target, CompileSink sink,
                                                   void* context);

// generator_fingerprint() of the library.
using FingerprintFunction = uint64_t (*)();

inline constexpr const char* kFingerprintFunctionName = "tutti_llvm_fingerprint";
inline constexpr const char* kCompileFunctionName = "tutti_llvm_compile";
inline constexpr const char* kCompileGemmFunctionName = "tutti_llvm_compile_gemm";
inline constexpr const char* kCompileAttentionFunctionName = "tutti_llvm_compile_attention";
inline constexpr const char* kKernelEntryName = "tutti_kernel";

}  // namespace tutti::codegen
