// LoopNest: the dims a kernel runs over, and how each operand moves along them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/codegen/kernel.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

inline constexpr size_t kMaxOperands = 16;      // of the kernel of one op
inline constexpr size_t kMaxNestOperands = 40;  // of a nest, whose kernel may stand for many ops

struct NestOperand {
  char* data;
  int64_t itemsize;
  Extents strides;   // elements, one per dim of the nest
  int64_t pick = 0;  // picked operands: see codegen::OperandCall
  int64_t extent = 0;
};

// Outer dims first. `logical` holds the row-major strides of the whole iteration space, for linear_index.
struct LoopNest {
  Extents sizes;
  Extents logical;
  std::vector<NestOperand> operands;

  // Adds `t` broadcast (right-aligned) to `sizes`.
  void add(const Tensor& t);
  // Merges neighbouring dims in [begin, end) that every operand crosses evenly; returns the new end.
  int collapse(int begin, int end);
  // Drops dims of size 1 in [begin, end); returns the new end.
  int drop_ones(int begin, int end);
  void permute(std::span<const int64_t> order);
  int64_t count(int begin, int end) const;
  void erase(int dim);
  void append_dim(int64_t size);  // a dim that no operand moves along
};

codegen::StrideClass class_of(int64_t stride, int64_t size);

// Strides of `t` for the broadcast shape `sizes` (0 where it repeats).
Extents broadcast_strides(const Tensor& t, const Extents& sizes);

// A run of a kernel over a nest: what the kernel loops over itself.
struct KernelRun {
  codegen::KernelEntry entry = nullptr;
  const codegen::ParamValue* params = nullptr;
  int64_t n_inner = 1;
  int64_t n_reduce = 0;
  int64_t leaf = 512;
  int inner_dim = -1;  // dim of the nest, -1: none
  int reduce_dim = -1;
  bool split_inner = false;     // the inner loop may be cut between threads
  char* const* data = nullptr;  // the operands' first elements, instead of those in the nest
  int64_t chain = 1;            // so many outer positions in a row are one thread's, in order
};
// Calls the kernel over the dims [0, outer_end) of the nest, the last of which may be handed to it as its outer loop.
// Runs in parallel when the work is large. Returns what the kernel reported in KernelCall::error.
[[nodiscard]] uint32_t run_nest(const LoopNest& nest, int outer_end, const KernelRun& run);

// Outer positions [begin, end), row-major over the outer dims, and inner elements [inner_begin, inner_end) of a nest.
struct NestPart {
  int64_t begin, end, inner_begin, inner_end;
};
// An operand of a part that lies elsewhere than the nest says: `data` is its element at the first position and inner
// element, the next position is row_stride elements further, inner elements are neighbours.
struct MovedOperand {
  size_t operand;
  char* data;
  int64_t row_stride;
};
// The part on the calling thread. Returns what the kernel reported.
[[nodiscard]] uint32_t run_nest_part(const LoopNest& nest, int outer_end, const KernelRun& run, const NestPart& part,
                                     const MovedOperand* moved = nullptr);

}  // namespace tutti
