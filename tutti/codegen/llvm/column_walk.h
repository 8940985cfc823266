// The order in which a column kernel reads memory: a block of neighbouring columns in strips of one vector, row after
// row of memory, all strips of a row before the next. Private to the column kernel.
#pragma once

#include <functional>
#include <vector>

#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/reduction_tree.h"

namespace tutti::codegen {

struct ColumnBlock {
  llvm::Value *index, *count;  // first column, number of columns
  unsigned lanes;
  bool masked;  // the last strip may be partial
};

llvm::Value* strips_of(Emitter& e, llvm::Value* columns, unsigned lanes);
Chunk strip_chunk(Emitter& e, const ColumnBlock& block, llvm::Value* strip);

class ColumnWalk {
 public:
  // The position of an element; values: the values of the nodes that are walked for.
  struct Element {
    llvm::Value *strip, *r,
        *k;  // position along the reduced dim: from its beginning and from the beginning of the walk
    Frame& frame;
    const Chunk& chunk;
    const std::vector<llvm::Value*>& values;
  };
  using Body = std::function<void(const Element&)>;

  // In the entry block of a function that got `call` and `state`. The values of `nodes` use the first `reductions`
  // results.
  ColumnWalk(Emitter& e, FrameState& states, llvm::Value* call, llvm::Value* state, const ColumnBlock& block,
             std::vector<int32_t> nodes, size_t reductions);

  // Elements [start, start + count) of the reduced dim. What does not change down a column is computed once.
  void for_elements(llvm::Value* start, llvm::Value* count, const Body& body);
  llvm::Value* error() const { return frame_.error; }

 private:
  std::vector<int32_t> nodes_down_columns() const;
  Frame frame_at(llvm::Value* r) const;
  void compute_columns(llvm::Value* strips);

  Emitter& e_;
  FrameState& states_;
  llvm::Value* state_;
  const ColumnBlock block_;
  const std::vector<int32_t> nodes_;
  const size_t reductions_;
  const std::vector<size_t> from_rows_;
  Frame frame_;
  std::vector<llvm::Value*> reduce_bytes_;  // per operand
  std::vector<int32_t> fixed_;              // nodes that do not change down a column, and their values: one a strip
  std::vector<llvm::Value*> fixed_values_;
};

}  // namespace tutti::codegen
