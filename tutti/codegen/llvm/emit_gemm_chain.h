// The chain of one leaf of a GEMM tile: all its products, added to accumulators. Private to emit_gemm.cpp.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/kernel.h"

namespace tutti::codegen {

class GemmChainEmitter {
 public:
  // Emits into `function` with `b`, which stands in its entry block. a, b_rows: pointers to the operands of the first
  // leaf; b_stride: i64, in elements. Accumulators and pointers are stack slots; scalar replacement turns them into
  // registers.
  GemmChainEmitter(llvm::IRBuilder<>& b, llvm::Function* function, const GemmKernelSpec& spec, CpuTarget target,
                   llvm::Value* a, llvm::Value* b_rows, llvm::Value* b_stride);

  // The chain over the next `length` (i64) k of both operands; without any, -0.0 (integers: 0).
  void run(llvm::Value* length);

  // while (counter slot > 0) { body; --counter }
  void count_down(const char* name, llvm::Value* counter, const std::function<void()>& body);
  // body(row, register, accumulator slot), row by row.
  void for_tile(const std::function<void(unsigned i, unsigned j, llvm::Value* slot)>& body);
  llvm::Value* get(llvm::Value* slot);
  llvm::Value* moved(llvm::Value* pointer, llvm::Value* distance);
  llvm::Value* moved(llvm::Value* pointer, int64_t distance);
  llvm::BasicBlock* block(const char* name);
  llvm::Type* vector() const { return vector_; }

 private:
  // The registers of a row of B.
  using Columns = std::vector<llvm::Value*>;
  enum class Step { first, next };  // of a leaf

  bool is_integer() const { return codegen::is_integer(spec_.kind); }
  bool is_in_place() const { return spec_.b_storage != packed_dtype(spec_.kind); }
  llvm::Value* zero() const;
  llvm::Value* multiply(llvm::Value* x, llvm::Value* y);
  llvm::Value* multiply_add(llvm::Value* x, llvm::Value* y, llvm::Value* sum_so_far);
  llvm::Value* pair_sums(llvm::Value* x, llvm::Value* y);
  llvm::Value* dot_units(llvm::Value* x, llvm::Value* y, llvm::Value* sum_so_far);
  llvm::Value* load_row(llvm::Value* b, unsigned j);
  Columns columns_of(llvm::Value* b);
  Columns pair_columns(llvm::Value* even, llvm::Value* odd);
  void step(llvm::Value* a, const Columns& columns, Step which);
  void steps(unsigned count, Step which);
  void pairs_in_place(unsigned count);
  void last_in_place();
  void prefetch(llvm::Value* b);
  void turns(const char* name, llvm::Value* count, unsigned unroll, const std::function<void(unsigned)>& body);
  void run_items(llvm::Value* length);
  void run_in_place_pairs(llvm::Value* length);

  llvm::IRBuilder<>& b_;
  llvm::Function* function_;
  const GemmKernelSpec& spec_;
  const CpuTarget target_;
  const unsigned lanes_, rows_, vectors_;
  llvm::Type *item_, *vector_;  // an item of packed A; a register of C
  llvm::Value *a_slot_, *b_slot_, *counter_, *b_stride_bytes_, *prefetch_bytes_;
  std::vector<llvm::Value*> accumulators_;
};

}  // namespace tutti::codegen
