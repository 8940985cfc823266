// The combining tree over leaves (numerics contract, N3 and N10) as a recursive function, and the state its leaf
// functions share with the loop that starts it.
//
// The order of combination depends on the element count and the leaf size only: vector width, thread count and
// instruction set have no part in it.
#pragma once

#include <string>
#include <vector>

#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/monoid.h"

namespace tutti::codegen {

// A frame, written to memory by the loop and read by leaf functions: addresses, positions, results of earlier groups.
class FrameState {
 public:
  FrameState(Emitter& e, unsigned result_lanes);

  llvm::Value* allocate();
  void write_frame(llvm::Value* state, const Frame& frame, const Chunk* chunk);
  void write_result(llvm::Value* state, size_t reduction, llvm::Value* value);
  // A frame in the current function; `chunk` gets index and count.
  Frame read_frame(llvm::Value* state, unsigned lanes, size_t reductions_known, Chunk* chunk);

 private:
  llvm::Value* field(llvm::Value* state, unsigned index);
  unsigned first_result() const { return static_cast<unsigned>(e_.operand_count()) * 2 + 4; }

  Emitter& e_;
  llvm::StructType* type_;
};

// A function (call, state, start, count) -> components of all monoids of the group, reducing one leaf.
struct LeafFunction {
  llvm::Function* function;
  llvm::StructType* result;
};
LeafFunction begin_leaf(Emitter& e, const ReductionGroup& group, unsigned lanes, const std::string& name);
void end_leaf(Emitter& e, const LeafFunction& leaf, const std::vector<Components>& values);

// The tree over [0, count) as a function; returns the final components per monoid of a call at the builder's place.
class ReductionTree {
 public:
  ReductionTree(Emitter& e, const ReductionGroup& group, LeafFunction leaf, const std::string& name);
  std::vector<Components> reduce(llvm::Value* call, llvm::Value* state, llvm::Value* count);

 private:
  std::vector<Components> unpack(llvm::Value* packed) const;
  llvm::Value* combine(llvm::Value* a, llvm::Value* b);
  llvm::Value* leaf_size(llvm::Value* call);
  void emit_halving();
  void emit_aligned();

  Emitter& e_;
  const ReductionGroup& group_;
  LeafFunction leaf_;
  llvm::Function* tree_;
};

}  // namespace tutti::codegen
