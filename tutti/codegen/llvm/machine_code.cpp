#include "tutti/codegen/llvm/machine_code.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <memory>
#include <mutex>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";
constexpr const char* kNarrowCpu = "x86-64-v3";
constexpr const char* kWideCpu = "x86-64-v4";

const char* cpu_of(CpuTarget target) { return has_wide_registers(target) ? kWideCpu : kNarrowCpu; }

// Beyond those of x86-64-v3 and v4.
const char* features_of(CpuTarget target) {
  switch (target) {
    case CpuTarget::avx512vnni:
      return "+prfchw,+avx512vnni";
    case CpuTarget::avx512bf16:
      return "+prfchw,+avx512vnni,+avx512bf16";
    default:
      return "+prfchw";
  }
}

std::unique_ptr<llvm::TargetMachine> make_machine(CpuTarget target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  std::string error;
  const llvm::Target* x86 = llvm::TargetRegistry::lookupTarget(kTriple, error);
  TUTTI_ASSERT(x86, "LLVM knows no {}: {}", kTriple, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // a multiply and an add never become one rounding
  options.UnsafeFPMath = false;
  return std::unique_ptr<llvm::TargetMachine>(
      x86->createTargetMachine(kTriple, cpu_of(target), features_of(target), options, llvm::Reloc::PIC_,
                               llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

// Emitters write vectors, hoist what is uniform and unroll themselves; what is left is tidying.
void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager call_graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(call_graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, call_graph, modules);

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass(llvm::InstCombineOptions().setMaxIterations(1)));
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) passes.run(function, functions);
  }
}

std::string generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  TUTTI_ASSERT(!machine.addPassesToEmitFile(passes, stream, nullptr, type), "LLVM cannot write objects");
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

void check_well_formed(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  TUTTI_ASSERT(!llvm::verifyModule(module, &stream), "kernel module is not well formed: {}", stream.str());
}

}  // namespace

void make_for(llvm::Function& function, CpuTarget target) {
  function.addFnAttr("no-builtins");  // loops must not become calls of memset and the like
  function.addFnAttr(llvm::Attribute::NoUnwind);
  // 512-bit registers at full clock are a property of every AVX-512 machine worth compiling for; LLVM's default is 256.
  function.addFnAttr("prefer-vector-width", has_wide_registers(target) ? "512" : "256");
  function.addFnAttr("target-cpu", cpu_of(target));
}

bool is_for_wide_registers(const llvm::Function& function) {
  return function.getFnAttribute("target-cpu").getValueAsString() == kWideCpu;
}

std::string to_machine_code(llvm::Module& module, CpuTarget target) {
  const std::unique_ptr<llvm::TargetMachine> machine = make_machine(target);
  module.setTargetTriple(kTriple);
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);
  check_well_formed(module);
  optimize(module, *machine);
  return generate(module, *machine, llvm::CodeGenFileType::ObjectFile);
}

}  // namespace tutti::codegen
