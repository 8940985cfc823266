// Products of operands that a kernel keeps in cache: no packing, choosing or threads of their own, the tiles and the
// summation order of gemm().
//
// The contraction may be handed over leaf by leaf, as the operands come into being: what is pending waits in memory of
// the caller. A leaf that contributes nothing (numerics contract, N8, N10) is left out of the sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/gemm/pack.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::codegen {

// `columns`, rounded up to whole registers.
int64_t whole_registers(int64_t columns, DType compute, CpuTarget target = cpu_target());

// The part of the contraction for a tile of C that is not known to be zero.
struct TilePart {
  int64_t begin, end;
};
using TilePartOf = FunctionRef<TilePart(int64_t row, int64_t rows, int64_t column, int64_t columns)>;

struct TileProductCall {
  const void* a;  // strips of rows, as pack() of the product lays them
  const void*
      b;  // packed items or rows of the dtype that run() is told, [.][columns of the call], b_stride elements apart
  int64_t b_stride;
  void* c;  // [rows][columns of the call], rows c_stride elements apart; written with the last leaf
  int64_t c_stride;
  int64_t columns;  // in whole registers
  // The leaves of this call in postfix order (contraction_tree.h).
  const int32_t* leaf_lengths;
  const uint8_t* merges;
  int64_t leaves = 1;
  bool is_last = true;
  // Pending sums, [rows][columns] each: room for `depth` of them, of which `pending` stand there. Needed by more leaves
  // than one, and by more calls than one.
  void* stack = nullptr;
  int64_t depth = 0, pending = 0;
  // Null: all of k. Products outside it must have a factor 0; several leaves, and leaves of two bf16 operands, are
  // taken whole or not at all. A tile of C without any part is not written.
  const TilePartOf* part = nullptr;
};

// C = A B for A of `rows` rows. Holds no data; any thread.
class TileProduct {
 public:
  // compute: as GemmProblem::compute.
  TileProduct(DType compute, int64_t rows, CpuTarget target = cpu_target());

  int64_t rows() const { return rows_; }
  TileKind kind() const { return kind_; }
  // Items of packed A for a contraction of k, with what packing writes behind.
  int64_t packed_size(int64_t k) const { return rows_ * k + kPackSlack; }
  // Lanes of the source are rows. The second takes leaves of any lengths, the first as pack() of gemm_pack.h.
  void pack(const PackSource& a, int64_t k, void* packed) const;
  void pack(const PackSource& a, std::span<const int32_t> leaf_lengths, void* packed) const;
  // B is packed as for the kind, or has a dtype that its tiles read in place (gemm_kernel.h).
  void run(const TileProductCall& call) const { run(call, packed_dtype(kind_)); }
  void run(const TileProductCall& call, DType storage) const;

 private:
  TileKind kind_;
  int64_t rows_;
  CpuTarget target_;
  int64_t lanes_, strips_, most_vectors_;
};

// Which partial sums of a tree exist, while its leaves come in order and some are absent.
class PendingSums {
 public:
  struct Step {
    bool run;         // call the product: a leaf, or sums that meet because of an absent one
    uint8_t merges;   // of sums that exist
    int64_t pending;  // before the call
  };
  // The next leaf, which the tree merges `merges` times.
  Step next(bool exists, uint8_t merges);
  // Sums that wait.
  int64_t pending() const { return height_; }

 private:
  std::vector<bool> exists_;
  int64_t height_ = 0;
};

}  // namespace tutti::codegen
