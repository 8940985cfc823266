#include "tutti/codegen/llvm/plugin.h"

#include <llvm/IR/LLVMContext.h>

#include <exception>
#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/generator_fingerprint.h"
#include "tutti/codegen/llvm/emit_attention.h"
#include "tutti/codegen/llvm/emit_gemm.h"
#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/machine_code.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

std::string compile(const KernelSpec& spec, CpuTarget target) {
  llvm::LLVMContext context;
  Emitter emitter(context, spec, target);
  switch (spec.kind) {
    case LoopKind::pointwise:
      emit_pointwise(emitter, kKernelEntryName);
      break;
    case LoopKind::row:
      emit_row(emitter, kKernelEntryName);
      break;
    case LoopKind::column:
      emit_column(emitter, kKernelEntryName);
      break;
    case LoopKind::scan:
      emit_scan(emitter, kKernelEntryName);
      break;
  }
  return to_machine_code(*emitter.module, target);
}

std::string compile(const GemmKernelSpec& spec, CpuTarget target) {
  llvm::LLVMContext context;
  llvm::Module module("gemm", context);
  emit_gemm_tile(module, spec, target, kKernelEntryName);
  return to_machine_code(module, target);
}

std::string compile(const AttentionKernelSpec& spec, CpuTarget target) {
  llvm::LLVMContext context;
  llvm::Module module("attention", context);
  emit_attention(module, spec, target, kKernelEntryName);
  return to_machine_code(module, target);
}

template <class Spec>
CompileStatus compile_into(const Spec& spec, CpuTarget target, CompileSink sink, void* context) {
  std::string bytes;
  CompileStatus status = CompileStatus::object;
  try {
    bytes = compile(spec, target);
  } catch (const UsageError& error) {
    bytes = error.what();
    status = CompileStatus::usage_error;
  } catch (const std::exception& error) {
    bytes = error.what();
    status = CompileStatus::internal_error;
  }
  sink(context, bytes.data(), bytes.size());
  return status;
}

}  // namespace
}  // namespace tutti::codegen

using tutti::codegen::CompileSink;
using tutti::codegen::CompileStatus;
using tutti::codegen::CpuTarget;

extern "C" [[gnu::visibility("default")]] uint64_t tutti_llvm_fingerprint() {
  return tutti::codegen::generator_fingerprint();
}

extern "C" [[gnu::visibility("default")]] CompileStatus tutti_llvm_compile(const tutti::codegen::KernelSpec* spec,
                                                                           CpuTarget target, CompileSink sink,
                                                                           void* context) {
  return tutti::codegen::compile_into(*spec, target, sink, context);
}

extern "C" [[gnu::visibility("default")]] CompileStatus tutti_llvm_compile_gemm(
    const tutti::codegen::GemmKernelSpec* spec, CpuTarget target, CompileSink sink, void* context) {
  return tutti::codegen::compile_into(*spec, target, sink, context);
}

extern "C" [[gnu::visibility("default")]] CompileStatus tutti_llvm_compile_attention(
    const tutti::codegen::AttentionKernelSpec* spec, CpuTarget target, CompileSink sink, void* context) {
  return tutti::codegen::compile_into(*spec, target, sink, context);
}
