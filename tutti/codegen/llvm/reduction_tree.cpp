#include "tutti/codegen/llvm/reduction_tree.h"

#include <cstddef>

namespace tutti::codegen {

using llvm::Value;

Records::Records(Emitter& e, const ReductionGroup& group, unsigned lanes) : e_(e), group_(group) {
  llvm::SmallVector<llvm::Type*, 8> fields;
  for (const Monoid& monoid : group.monoids) fields.append(monoid.component_types(lanes));
  type_ = llvm::StructType::get(e.b.getContext(), fields);
}

std::vector<Components> Records::read(Value* records, Value* strip) {
  Value* record = e_.b.CreateGEP(type_, records, strip);
  std::vector<Components> values;
  unsigned index = 0;
  for (const Monoid& monoid : group_.monoids) {
    values.emplace_back();
    for (size_t k = 0; k < monoid.component_types(1).size(); ++k, ++index)
      values.back().push_back(
          e_.b.CreateLoad(type_->getElementType(index), e_.b.CreateStructGEP(type_, record, index)));
  }
  return values;
}

void Records::write(Value* records, Value* strip, const std::vector<Components>& values) {
  Value* record = e_.b.CreateGEP(type_, records, strip);
  unsigned index = 0;
  for (const Components& components : values) {
    for (Value* v : components) e_.b.CreateStore(v, e_.b.CreateStructGEP(type_, record, index++));
  }
}

llvm::Function* begin_leaf(Emitter& e, const std::string& name) {
  llvm::Type* ptr = e.b.getPtrTy();
  llvm::Type* word = e.b.getInt64Ty();
  llvm::Function* leaf =
      e.begin_function(name, llvm::FunctionType::get(e.b.getVoidTy(), {ptr, ptr, word, word, ptr}, false), false);
  e.load_params(leaf->getArg(0));
  return leaf;
}

ReductionTree::ReductionTree(Emitter& e, const ReductionGroup& group, unsigned lanes, llvm::Function* leaf,
                             const std::string& name, StripCount strip_count)
    : e_(e), group_(group), records_(e, group, lanes), strip_count_(std::move(strip_count)), leaf_(leaf) {
  llvm::Type* ptr = e.b.getPtrTy();
  llvm::Type* word = e.b.getInt64Ty();
  // halving: (call, state, start, count, -, out); aligned: (call, state, start, span, end, out)
  auto* type = llvm::FunctionType::get(e.b.getVoidTy(), {ptr, ptr, word, word, word, ptr}, false);
  tree_ = e.begin_function(name, type, false);
  if (group.tree == TreeKind::halving) emit_halving();
  else emit_aligned();
}

// Left results stand in `out`; the records `right` are joined to them.
void ReductionTree::combine_into(Value* state, Value* out, Value* right) {
  const auto combine = [&](Value* strip) {
    std::vector<Components> values = records_.read(out, strip);
    const std::vector<Components> others = records_.read(right, strip);
    for (size_t m = 0; m < values.size(); ++m) values[m] = group_.monoids[m].combine(values[m], others[m]);
    records_.write(out, strip, values);
  };
  if (!strip_count_) return combine(e_.i64(0));
  e_.for_loop("strip", e_.i64(0), strip_count_(state), e_.i64(1), combine);
}

Value* ReductionTree::leaf_size(Value* call) {
  Value* leaf = e_.call_field(call, offsetof(KernelCall, leaf), e_.b.getInt64Ty());
  return e_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, leaf, e_.i64(1));
}

// n elements split into ceil(n/2) and floor(n/2) until n fits a leaf.
void ReductionTree::emit_halving() {
  llvm::IRBuilder<>& b = e_.b;
  Value *call = tree_->getArg(0), *state = tree_->getArg(1), *start = tree_->getArg(2), *count = tree_->getArg(3),
        *out = tree_->getArg(5);
  llvm::BasicBlock* split = e_.block("split");
  llvm::BasicBlock* leaf = e_.block("leaf");
  b.CreateCondBr(b.CreateICmpSGT(count, leaf_size(call)), split, leaf);
  b.SetInsertPoint(leaf);
  b.CreateCall(leaf_, {call, state, start, count, out});
  b.CreateRetVoid();
  b.SetInsertPoint(split);
  Value* right = records_.allocate(most_strips());
  Value* floor_half = b.CreateLShr(count, e_.i64(1));
  Value* ceil_half = b.CreateSub(count, floor_half);
  b.CreateCall(tree_, {call, state, start, ceil_half, e_.i64(0), out});
  b.CreateCall(tree_, {call, state, b.CreateAdd(start, ceil_half), floor_half, e_.i64(0), right});
  combine_into(state, out, right);
  b.CreateRetVoid();
}

// Spans are a leaf times a power of two and start at a multiple of themselves; a span beyond the end is absent, which
// leaves its sibling unchanged.
void ReductionTree::emit_aligned() {
  llvm::IRBuilder<>& b = e_.b;
  Value *call = tree_->getArg(0), *state = tree_->getArg(1), *start = tree_->getArg(2), *span = tree_->getArg(3),
        *end = tree_->getArg(4), *out = tree_->getArg(5);
  llvm::BasicBlock* split = e_.block("split");
  llvm::BasicBlock* leaf = e_.block("leaf");
  b.CreateCondBr(b.CreateICmpSGT(span, leaf_size(call)), split, leaf);
  b.SetInsertPoint(leaf);
  Value* count = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, span, b.CreateSub(end, start));
  b.CreateCall(leaf_, {call, state, start, count, out});
  b.CreateRetVoid();
  b.SetInsertPoint(split);
  Value* right = records_.allocate(most_strips());
  Value* half = b.CreateLShr(span, e_.i64(1));
  Value* middle = b.CreateAdd(start, half);
  b.CreateCall(tree_, {call, state, start, half, end, out});
  e_.if_then(b.CreateICmpSLT(middle, end), [&] {
    b.CreateCall(tree_, {call, state, middle, half, end, right});
    combine_into(state, out, right);
  });
  b.CreateRetVoid();
}

void ReductionTree::reduce(Value* call, Value* state, Value* count, Value* out) {
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
  b.CreateCall(tree_, {call, state, e_.i64(0), extent, count, out});
}

}  // namespace tutti::codegen
