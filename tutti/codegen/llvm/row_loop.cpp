#include "tutti/codegen/llvm/row_loop.h"

#include <cstddef>

namespace tutti::codegen {

using llvm::Value;

void emit_row_loop(Emitter& e, const std::string& name, unsigned lanes,
                   const std::function<void(Value* call, Frame& frame)>& row) {
  llvm::IRBuilder<>& b = e.b;
  llvm::Type* word = b.getInt64Ty();
  llvm::Type* ptr = b.getPtrTy();
  Frame shared;
  shared.function = e.begin_function(name, llvm::FunctionType::get(b.getVoidTy(), {ptr}, false), true);
  shared.lanes = lanes;
  Value* call = shared.function->getArg(0);
  shared.error = e.new_error_slot();
  shared.length = e.call_field(call, offsetof(KernelCall, n_inner), word);
  Value* first_index = e.call_field(call, offsetof(KernelCall, first_index), word);
  Value* index_outer = e.call_field(call, offsetof(KernelCall, index_outer), word);
  Value* n_outer = e.call_field(call, offsetof(KernelCall, n_outer), word);
  e.load_params(call);
  e.load_picks(shared, call);
  std::vector<Value*> data, outer_bytes;
  for (size_t k = 0; k < e.operand_count(); ++k) {
    Value* itembytes = e.i64(itemsize(e.operand(k).dtype));
    data.push_back(e.operand_field(call, k, offsetof(OperandCall, data), ptr));
    outer_bytes.push_back(b.CreateMul(e.operand_field(call, k, offsetof(OperandCall, outer), word), itembytes));
    const bool strided = e.operand(k).inner == StrideClass::strided;
    shared.inner_bytes.push_back(
        strided ? b.CreateMul(e.operand_field(call, k, offsetof(OperandCall, inner), word), itembytes) : nullptr);
  }
  e.for_loop("row", e.i64(0), n_outer, e.i64(1), [&](Value* o) {
    Frame frame = shared;
    frame.first_index = b.CreateAdd(first_index, b.CreateMul(o, index_outer));
    for (size_t k = 0; k < e.operand_count(); ++k)
      frame.base.push_back(b.CreateGEP(b.getInt8Ty(), data[k], b.CreateMul(o, outer_bytes[k])));
    row(call, frame);
  });
  e.report_error(call, shared.error);
  b.CreateRetVoid();
}

void emit_pointwise(Emitter& e, const std::string& name) {
  std::vector<size_t> outputs;
  for (size_t k = 0; k < e.spec.outputs.size(); ++k) outputs.push_back(k);
  emit_row_loop(e, name, e.vector_lanes(e.spec.results), [&](Value*, Frame& frame) {
    // An empty row computes nothing, not even what all its elements share: a zero divisor there is no error.
    e.if_then(e.b.CreateICmpSGT(frame.length, e.i64(0)),
              [&] { e.with_row_picks(frame, [&] { e.store_row(frame, outputs, frame.length); }); });
  });
}

}  // namespace tutti::codegen
