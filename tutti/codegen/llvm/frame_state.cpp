#include "tutti/codegen/llvm/reduction_tree.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

// Per operand: address and byte stride; then these.
enum Field : unsigned { kFirstIndex, kLength, kChunkIndex, kChunkCount };

}  // namespace

FrameState::FrameState(Emitter& e, unsigned result_lanes) : e_(e) {
  llvm::SmallVector<llvm::Type*, 16> fields;
  for (size_t k = 0; k < e.operand_count(); ++k) {
    fields.push_back(e.b.getPtrTy());
    fields.push_back(e.b.getInt64Ty());
  }
  fields.append(4, e.b.getInt64Ty());
  for (const Reduction& reduction : e.spec.reductions) {
    const bool indexed = reduction.op == ReduceOp::argmax || reduction.op == ReduceOp::argmin;
    const DType dtype = indexed ? DType::i64 : e.spec.nodes[static_cast<size_t>(reduction.value)].dtype;
    fields.push_back(widened(register_type(e.b.getContext(), dtype), result_lanes));
  }
  type_ = llvm::StructType::get(e.b.getContext(), fields);
}

Value* FrameState::allocate() { return e_.slot(type_, "state"); }

Value* FrameState::field(Value* state, unsigned index) { return e_.b.CreateStructGEP(type_, state, index); }

void FrameState::write_frame(Value* state, const Frame& frame, const Chunk* chunk) {
  const auto operands = static_cast<unsigned>(e_.operand_count());
  for (unsigned k = 0; k < operands; ++k) {
    e_.b.CreateStore(frame.base[k], field(state, 2 * k));
    if (frame.inner_bytes[k]) e_.b.CreateStore(frame.inner_bytes[k], field(state, 2 * k + 1));
  }
  e_.b.CreateStore(frame.first_index, field(state, 2 * operands + kFirstIndex));
  e_.b.CreateStore(frame.length, field(state, 2 * operands + kLength));
  if (!chunk) return;
  e_.b.CreateStore(chunk->index, field(state, 2 * operands + kChunkIndex));
  if (chunk->count) e_.b.CreateStore(chunk->count, field(state, 2 * operands + kChunkCount));
}

void FrameState::write_result(Value* state, size_t reduction, Value* value) {
  e_.b.CreateStore(value, field(state, first_result() + static_cast<unsigned>(reduction)));
}

Frame FrameState::read_frame(Value* state, unsigned lanes, size_t reductions_known, Chunk* chunk) {
  llvm::IRBuilder<>& b = e_.b;
  const auto operands = static_cast<unsigned>(e_.operand_count());
  Frame frame;
  frame.function = b.GetInsertBlock()->getParent();
  frame.lanes = lanes;
  for (unsigned k = 0; k < operands; ++k) {
    const bool strided = e_.operand(k).inner == StrideClass::strided;
    frame.base.push_back(b.CreateLoad(b.getPtrTy(), field(state, 2 * k)));
    frame.inner_bytes.push_back(strided ? b.CreateLoad(b.getInt64Ty(), field(state, 2 * k + 1)) : nullptr);
  }
  frame.first_index = b.CreateLoad(b.getInt64Ty(), field(state, 2 * operands + kFirstIndex));
  frame.length = b.CreateLoad(b.getInt64Ty(), field(state, 2 * operands + kLength));
  if (chunk) {
    chunk->index = b.CreateLoad(b.getInt64Ty(), field(state, 2 * operands + kChunkIndex));
    chunk->count = b.CreateLoad(b.getInt64Ty(), field(state, 2 * operands + kChunkCount));
  }
  for (size_t k = 0; k < reductions_known; ++k) {
    const unsigned index = first_result() + static_cast<unsigned>(k);
    frame.reduced.push_back(b.CreateLoad(type_->getElementType(index), field(state, index)));
  }
  frame.error = e_.new_error_slot();
  return frame;
}

}  // namespace tutti::codegen
