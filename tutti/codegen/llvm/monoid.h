// The monoid of each reduction: identity, one element lifted, two partial results joined. The same code serves vectors
// of any lane count, scalars, row, column and scan kernels.
#pragma once

#include <llvm/ADT/SmallVector.h>

#include <vector>

#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using Components = llvm::SmallVector<llvm::Value*, 2>;

// One reduction, or softmax_max with the softmax_sum or softmax_rest behind it. Components: (value), (value, index),
// (m, l) or (m, r).
class Monoid {
 public:
  Monoid(Emitter& e, size_t first_reduction);

  int32_t value_node() const { return value_; }
  size_t first_reduction() const { return first_; }
  size_t reduction_count() const { return is_softmax() ? 2 : 1; }
  bool is_softmax() const { return op_ == ReduceOp::softmax_max; }
  llvm::SmallVector<llvm::Type*, 2> component_types(unsigned lanes) const;

  Components identity(unsigned lanes) const;
  // An element x at i64 position `index` (lanes alike); lanes outside `mask` become the identity.
  Components lift(llvm::Value* x, llvm::Value* index, llvm::Value* mask) const;
  Components combine(const Components& a, const Components& b) const;
  // Lanes combined by halving: lane j with lane j + 8, then j + 4, ... Scalars remain.
  Components fold_lanes(const Components& v) const;
  // The results of the reductions, computed from the final components; one value per reduction.
  Components results(const Components& v) const;

  // The identity of what the lanes of a leaf hold: the components or, for softmax, the maximum and then the sums below.
  Components leaf_identity(unsigned lanes) const;

  // Softmax in two passes over a leaf: first its maximum m alone, then sums of exp(x - m) over the lanes. A rest leaves
  // out the elements that are m and counts them in a second sum, so that a small rest is not rounded off beside them.
  llvm::Value* combine_max(llvm::Value* a, llvm::Value* b) const;
  llvm::Value* fold_max(llvm::Value* lanes) const;
  Components add_exponential(const Components& sums, llvm::Value* x, llvm::Value* m, llvm::Value* mask) const;
  Components add_sums(const Components& a, const Components& b) const;
  Components fold_sums(const Components& lanes) const;
  Components leaf_result(llvm::Value* m, const Components& sums) const;

 private:
  bool has_index() const { return op_ == ReduceOp::argmax || op_ == ReduceOp::argmin; }
  bool has_rest() const { return is_softmax() && e_.spec.reductions[first_ + 1].op == ReduceOp::softmax_rest; }
  bool wants_largest() const;
  llvm::Value* join(llvm::Value* a, llvm::Value* b) const;
  Components join_indexed(const Components& a, const Components& b) const;
  Components join_softmax(const Components& a, const Components& b) const;
  Components join_rest(const Components& a, const Components& b) const;
  llvm::Constant* value_identity() const;
  llvm::Value* without_infinity(llvm::Value* m) const;
  llvm::Value* exponential(llvm::Value* x) const;

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  ReduceOp op_;
  DType dtype_;
  int32_t value_;
  size_t first_;
};

// Consecutive reductions that one pass over the data serves: same tree, and no value that needs a result of the pass.
struct ReductionGroup {
  TreeKind tree;
  std::vector<Monoid> monoids;
  std::vector<int32_t> value_nodes() const;
};
std::vector<ReductionGroup> group_reductions(Emitter& e);

}  // namespace tutti::codegen
