#include "tutti/codegen/llvm/reduction_tree.h"

#include <cstddef>

namespace tutti::codegen {

using llvm::Value;

LeafFunction begin_leaf(Emitter& e, const ReductionGroup& group, unsigned lanes, const std::string& name) {
  llvm::SmallVector<llvm::Type*, 8> fields;
  for (const Monoid& monoid : group.monoids) fields.append(monoid.component_types(lanes));
  auto* result = llvm::StructType::get(e.b.getContext(), fields);
  llvm::Type* ptr = e.b.getPtrTy();
  llvm::Type* word = e.b.getInt64Ty();
  LeafFunction leaf{e.begin_function(name, llvm::FunctionType::get(result, {ptr, ptr, word, word}, false), false), result};
  e.load_params(leaf.function->getArg(0));
  return leaf;
}

void end_leaf(Emitter& e, const LeafFunction& leaf, const std::vector<Components>& values) {
  Value* packed = llvm::PoisonValue::get(leaf.result);
  unsigned index = 0;
  for (const Components& components : values) {
    for (Value* v : components) packed = e.b.CreateInsertValue(packed, v, index++);
  }
  e.b.CreateRet(packed);
}

ReductionTree::ReductionTree(Emitter& e, const ReductionGroup& group, LeafFunction leaf, const std::string& name)
    : e_(e), group_(group), leaf_(leaf) {
  llvm::Type* ptr = e.b.getPtrTy();
  llvm::Type* word = e.b.getInt64Ty();
  // halving: (call, state, start, count, -); aligned: (call, state, start, span, end)
  tree_ = e.begin_function(name, llvm::FunctionType::get(leaf.result, {ptr, ptr, word, word, word}, false), false);
  if (group.tree == TreeKind::halving) emit_halving();
  else emit_aligned();
}

std::vector<Components> ReductionTree::unpack(Value* packed) const {
  std::vector<Components> values;
  unsigned index = 0;
  for (const Monoid& monoid : group_.monoids) {
    Components components;
    for (size_t k = 0; k < monoid.component_types(1).size(); ++k)
      components.push_back(e_.b.CreateExtractValue(packed, index++));
    values.push_back(components);
  }
  return values;
}

Value* ReductionTree::combine(Value* a, Value* b) {
  const std::vector<Components> left = unpack(a), right = unpack(b);
  Value* packed = llvm::PoisonValue::get(leaf_.result);
  unsigned index = 0;
  for (size_t m = 0; m < group_.monoids.size(); ++m) {
    for (Value* v : group_.monoids[m].combine(left[m], right[m])) packed = e_.b.CreateInsertValue(packed, v, index++);
  }
  return packed;
}

Value* ReductionTree::leaf_size(Value* call) {
  Value* leaf = e_.call_field(call, offsetof(KernelCall, leaf), e_.b.getInt64Ty());
  return e_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, leaf, e_.i64(1));
}

// n elements split into ceil(n/2) and floor(n/2) until n fits a leaf.
void ReductionTree::emit_halving() {
  llvm::IRBuilder<>& b = e_.b;
  Value *call = tree_->getArg(0), *state = tree_->getArg(1), *start = tree_->getArg(2), *count = tree_->getArg(3);
  llvm::BasicBlock* split = e_.block("split");
  llvm::BasicBlock* leaf = e_.block("leaf");
  b.CreateCondBr(b.CreateICmpSGT(count, leaf_size(call)), split, leaf);
  b.SetInsertPoint(leaf);
  b.CreateRet(b.CreateCall(leaf_.function, {call, state, start, count}));
  b.SetInsertPoint(split);
  Value* floor_half = b.CreateLShr(count, e_.i64(1));
  Value* ceil_half = b.CreateSub(count, floor_half);
  Value* left = b.CreateCall(tree_, {call, state, start, ceil_half, e_.i64(0)});
  Value* right = b.CreateCall(tree_, {call, state, b.CreateAdd(start, ceil_half), floor_half, e_.i64(0)});
  b.CreateRet(combine(left, right));
}

// Spans are a leaf times a power of two and start at a multiple of themselves; a span beyond the end is absent, which
// leaves its sibling unchanged.
void ReductionTree::emit_aligned() {
  llvm::IRBuilder<>& b = e_.b;
  Value *call = tree_->getArg(0), *state = tree_->getArg(1), *start = tree_->getArg(2), *span = tree_->getArg(3),
        *end = tree_->getArg(4);
  llvm::BasicBlock* split = e_.block("split");
  llvm::BasicBlock* leaf = e_.block("leaf");
  llvm::BasicBlock* both = e_.block("both");
  llvm::BasicBlock* alone = e_.block("alone");
  b.CreateCondBr(b.CreateICmpSGT(span, leaf_size(call)), split, leaf);
  b.SetInsertPoint(leaf);
  Value* count = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, span, b.CreateSub(end, start));
  b.CreateRet(b.CreateCall(leaf_.function, {call, state, start, count}));
  b.SetInsertPoint(split);
  Value* half = b.CreateLShr(span, e_.i64(1));
  Value* middle = b.CreateAdd(start, half);
  Value* left = b.CreateCall(tree_, {call, state, start, half, end});
  b.CreateCondBr(b.CreateICmpSLT(middle, end), both, alone);
  b.SetInsertPoint(alone);
  b.CreateRet(left);
  b.SetInsertPoint(both);
  b.CreateRet(combine(left, b.CreateCall(tree_, {call, state, middle, half, end})));
}

std::vector<Components> ReductionTree::reduce(Value* call, Value* state, Value* count) {
  llvm::IRBuilder<>& b = e_.b;
  Value* extent = count;
  if (group_.tree == TreeKind::aligned) {
    Value* leaf = leaf_size(call);
    Value* leaves = b.CreateUDiv(b.CreateSub(b.CreateAdd(count, leaf), e_.i64(1)), leaf);
    Value* last = b.CreateSub(b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, leaves, e_.i64(1)), e_.i64(1));
    // The smallest power of two that is not below the number of leaves.
    Value* zeros = b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, last, b.getFalse());
    extent = b.CreateMul(leaf, b.CreateShl(e_.i64(1), b.CreateSub(e_.i64(64), zeros)));
  }
  return unpack(b.CreateCall(tree_, {call, state, e_.i64(0), extent, count}));
}

}  // namespace tutti::codegen
