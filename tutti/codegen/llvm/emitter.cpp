#include "tutti/codegen/llvm/emitter.h"

#include <algorithm>
#include <cstddef>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/machine_code.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::BasicBlock;
using llvm::Function;
using llvm::Value;

Emitter::Emitter(llvm::LLVMContext& context, const KernelSpec& kernel, CpuTarget cpu)
    : spec(kernel), target(cpu), module(std::make_unique<llvm::Module>("kernel", context)), b(context) {
  find_uniform();
}

Function* Emitter::begin_function(const std::string& name, llvm::FunctionType* type, bool exported) {
  Function* function =
      Function::Create(type, exported ? Function::ExternalLinkage : Function::InternalLinkage, name, *module);
  make_for(*function, target);
  b.SetInsertPoint(BasicBlock::Create(b.getContext(), "entry", function));
  return function;
}

Value* Emitter::slot(llvm::Type* type, const char* name, unsigned count) {
  BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  auto* memory = at_entry.CreateAlloca(type, b.getInt32(count), name);
  memory->setAlignment(std::max(llvm::Align(64), module->getDataLayout().getABITypeAlign(type)));
  return memory;
}

BasicBlock* Emitter::block(const char* name) {
  return BasicBlock::Create(b.getContext(), name, b.GetInsertBlock()->getParent());
}

void Emitter::for_loop(const char* name, Value* begin, Value* end, Value* step,
                       const std::function<void(Value*)>& body) {
  BasicBlock* before = b.GetInsertBlock();
  BasicBlock* inside = block(name);
  BasicBlock* after = block("after");
  b.CreateCondBr(b.CreateICmpSLT(begin, end), inside, after);
  b.SetInsertPoint(inside);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2, "i");
  i->addIncoming(begin, before);
  body(i);
  Value* next = b.CreateNSWAdd(i, step);
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, end), inside, after);
  b.SetInsertPoint(after);
}

void Emitter::if_then(Value* condition, const std::function<void()>& body) {
  BasicBlock* inside = block("then");
  BasicBlock* after = block("after");
  b.CreateCondBr(condition, inside, after);
  b.SetInsertPoint(inside);
  body();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

Value* Emitter::call_field(Value* call, size_t offset, llvm::Type* type) {
  return b.CreateLoad(type, b.CreateConstGEP1_64(b.getInt8Ty(), call, offset));
}

Value* Emitter::operand_field(Value* call, size_t operand, size_t offset, llvm::Type* type) {
  Value* operands = call_field(call, offsetof(KernelCall, operands), b.getPtrTy());
  return b.CreateLoad(type, b.CreateConstGEP1_64(b.getInt8Ty(), operands, operand * sizeof(OperandCall) + offset));
}

void Emitter::load_params(Value* call) {
  params_.assign(spec.nodes.size(), nullptr);
  Value* params = nullptr;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const ExprNode& node = spec.nodes[n];
    if (node.op != ScalarOp::param) continue;
    if (!params) params = call_field(call, offsetof(KernelCall, params), b.getPtrTy());
    Value* address =
        b.CreateConstGEP1_64(b.getInt8Ty(), params, static_cast<uint64_t>(node.index) * sizeof(ParamValue));
    llvm::Type* type = register_type(b.getContext(), node.dtype);
    if (is_floating(node.dtype)) {
      params_[n] = b.CreateFPCast(b.CreateLoad(b.getDoubleTy(), address), type);
    } else {
      Value* raw = b.CreateLoad(b.getInt64Ty(), address);
      params_[n] = node.dtype == DType::boolean ? b.CreateICmpNE(raw, i64(0)) : b.CreateTrunc(raw, type);
    }
  }
}

Value* Emitter::new_error_slot() {
  Value* error = slot(b.getInt32Ty(), "error");
  b.CreateStore(b.getInt32(0), error);
  return error;
}

void Emitter::report_error(Value* call, Value* error_slot) {
  Value* seen = b.CreateLoad(b.getInt32Ty(), error_slot);
  if_then(b.CreateICmpNE(seen, b.getInt32(0)), [&] {
    Value* address = call_field(call, offsetof(KernelCall, error), b.getPtrTy());
    b.CreateAtomicRMW(llvm::AtomicRMWInst::Or, address, seen, llvm::Align(4), llvm::AtomicOrdering::Monotonic);
  });
}

}  // namespace tutti::codegen
