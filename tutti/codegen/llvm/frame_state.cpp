#include "tutti/codegen/llvm/reduction_tree.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

// Per operand: address and byte stride; then these; then the results, an array over strips each.
enum Position : unsigned { kFirstIndex, kLength, kBlockIndex, kBlockCount, kPositions };

}  // namespace

FrameState::FrameState(Emitter& e, unsigned result_lanes, int64_t strips) : e_(e) {
  llvm::SmallVector<llvm::Type*, 16> fields;
  for (size_t k = 0; k < e.operand_count(); ++k) {
    fields.push_back(e.b.getPtrTy());
    fields.push_back(e.b.getInt64Ty());
  }
  fields.append(kPositions, e.b.getInt64Ty());
  for (const Reduction& reduction : e.spec.reductions) {
    const bool indexed = reduction.op == ReduceOp::argmax || reduction.op == ReduceOp::argmin;
    const DType dtype = indexed ? DType::i64 : e.spec.nodes[static_cast<size_t>(reduction.value)].dtype;
    result_types_.push_back(widened(register_type(e.b.getContext(), dtype), result_lanes));
    fields.push_back(llvm::ArrayType::get(result_types_.back(), static_cast<uint64_t>(strips)));
  }
  type_ = llvm::StructType::get(e.b.getContext(), fields);
}

Value* FrameState::allocate() { return e_.slot(type_, "state"); }

Value* FrameState::field(Value* state, unsigned index) { return e_.b.CreateStructGEP(type_, state, index); }

void FrameState::write_frame(Value* state, const Frame& frame, Value* index, Value* count) {
  llvm::IRBuilder<>& b = e_.b;
  for (unsigned k = 0; k < static_cast<unsigned>(e_.operand_count()); ++k) {
    b.CreateStore(frame.base[k], field(state, 2 * k));
    if (frame.inner_bytes[k]) b.CreateStore(frame.inner_bytes[k], field(state, 2 * k + 1));
  }
  b.CreateStore(frame.first_index, field(state, first_position() + kFirstIndex));
  b.CreateStore(frame.length, field(state, first_position() + kLength));
  if (index) b.CreateStore(index, field(state, first_position() + kBlockIndex));
  if (count) b.CreateStore(count, field(state, first_position() + kBlockCount));
}

Frame FrameState::read_frame(Value* state, unsigned lanes) {
  llvm::IRBuilder<>& b = e_.b;
  Frame frame;
  frame.function = b.GetInsertBlock()->getParent();
  frame.lanes = lanes;
  for (unsigned k = 0; k < static_cast<unsigned>(e_.operand_count()); ++k) {
    const bool strided = e_.operand(k).inner == StrideClass::strided;
    frame.base.push_back(b.CreateLoad(b.getPtrTy(), field(state, 2 * k)));
    frame.inner_bytes.push_back(strided ? b.CreateLoad(b.getInt64Ty(), field(state, 2 * k + 1)) : nullptr);
  }
  frame.first_index = b.CreateLoad(b.getInt64Ty(), field(state, first_position() + kFirstIndex));
  frame.length = b.CreateLoad(b.getInt64Ty(), field(state, first_position() + kLength));
  frame.error = e_.new_error_slot();
  return frame;
}

Value* FrameState::block_index(Value* state) {
  return e_.b.CreateLoad(e_.b.getInt64Ty(), field(state, first_position() + kBlockIndex));
}

Value* FrameState::block_count(Value* state) {
  return e_.b.CreateLoad(e_.b.getInt64Ty(), field(state, first_position() + kBlockCount));
}

Value* FrameState::result_address(Value* state, size_t reduction, Value* strip) {
  Value* array = field(state, first_position() + kPositions + static_cast<unsigned>(reduction));
  return e_.b.CreateGEP(result_types_[reduction], array, strip);
}

void FrameState::write_result(Value* state, size_t reduction, Value* strip, Value* value) {
  e_.b.CreateStore(value, result_address(state, reduction, strip));
}

std::vector<Value*> FrameState::read_results(Value* state, Value* strip, size_t count) {
  std::vector<Value*> results;
  for (size_t k = 0; k < count; ++k)
    results.push_back(e_.b.CreateLoad(result_types_[k], result_address(state, k, strip)));
  return results;
}

}  // namespace tutti::codegen
