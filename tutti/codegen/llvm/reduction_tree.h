// The combining tree over leaves (numerics contract, N3 and N10) as a recursive function, and the state its leaf
// functions share with the loop that starts it.
//
// The order of combination depends on the element count and the leaf size only: vector width, thread count and
// instruction set have no part in it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/monoid.h"

namespace tutti::codegen {

// Leaves and trees work on a block of *strips*: neighbouring vectors of columns that go through the tree together, so
// that a row of memory is read in long pieces: 4 KiB of f32 on AVX2. Shorter ones, far apart, take twice as long
// beyond the caches; the chains of so many strips, 64 KiB a sum, cost nothing in the second level. Row kernels have one
// strip, of scalars.
inline constexpr int64_t kMostStrips = 64;

// A frame, written to memory by the loop and read by leaf functions: addresses, positions, results of earlier groups.
class FrameState {
 public:
  FrameState(Emitter& e, unsigned result_lanes, int64_t strips);

  llvm::Value* allocate();
  // `index` and `count`: first column and number of columns of the block; null in row kernels.
  void write_frame(llvm::Value* state, const Frame& frame, llvm::Value* index, llvm::Value* count);
  Frame read_frame(llvm::Value* state, unsigned lanes);
  llvm::Value* block_index(llvm::Value* state);
  llvm::Value* block_count(llvm::Value* state);
  void write_result(llvm::Value* state, size_t reduction, llvm::Value* strip, llvm::Value* value);
  // The first `count` results, for one strip.
  std::vector<llvm::Value*> read_results(llvm::Value* state, llvm::Value* strip, size_t count);

 private:
  llvm::Value* field(llvm::Value* state, unsigned index);
  llvm::Value* result_address(llvm::Value* state, size_t reduction, llvm::Value* strip);
  unsigned first_position() const { return static_cast<unsigned>(e_.operand_count()) * 2; }

  Emitter& e_;
  llvm::SmallVector<llvm::Type*, 4> result_types_;  // of one strip
  llvm::StructType* type_;
};

// Components of all monoids of a group, one record per strip in memory.
class Records {
 public:
  Records(Emitter& e, const ReductionGroup& group, unsigned lanes);
  llvm::Value* allocate(int64_t strips) { return e_.slot(type_, "records", static_cast<unsigned>(strips)); }
  std::vector<Components> read(llvm::Value* records, llvm::Value* strip);
  void write(llvm::Value* records, llvm::Value* strip, const std::vector<Components>& values);

 private:
  Emitter& e_;
  const ReductionGroup& group_;
  llvm::StructType* type_;
};

// Begins a function (call, state, start, count, out) that reduces one leaf into the records `out`.
llvm::Function* begin_leaf(Emitter& e, const std::string& name);

// The tree over [0, count) as a recursive function.
class ReductionTree {
 public:
  // `strip_count` gives the number of strips in use from a state; null: one.
  using StripCount = std::function<llvm::Value*(llvm::Value* state)>;
  ReductionTree(Emitter& e, const ReductionGroup& group, unsigned lanes, llvm::Function* leaf, const std::string& name,
                StripCount strip_count = nullptr);
  void reduce(llvm::Value* call, llvm::Value* state, llvm::Value* count, llvm::Value* out);
  Records& records() { return records_; }

 private:
  int64_t most_strips() const { return strip_count_ ? kMostStrips : 1; }
  void combine_into(llvm::Value* state, llvm::Value* out, llvm::Value* right);
  llvm::Value* leaf_size(llvm::Value* call);
  void emit_halving();
  void emit_aligned();

  Emitter& e_;
  const ReductionGroup& group_;
  Records records_;
  StripCount strip_count_;
  llvm::Function* leaf_;
  llvm::Function* tree_;
};

}  // namespace tutti::codegen
