// Attention kernels that run between its matrix products, on tiles of scores that stay in cache.
//
// In forward tiles, rows are keys and columns are queries, so that the softmax monoid of each query runs in its own
// lane; in backward tiles, rows are queries and columns are keys. Elements have the compute dtype, f32 or f64. The
// result of a lane depends on its column alone: bits do not depend on the instruction set or on what else is in the
// tile.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

enum class AttentionStep : uint8_t {
  softmax,   // scores of one key block -> exp(x - m), m, l (numerics contract, N10)
  combine,   // two nodes of the tree over key blocks -> their parent, in the place of the left one
  finish,    // the node of all keys -> output and log-sum-exp
  gradient,  // scores, dp -> p, ds
};

struct AttentionKernelSpec {
  AttentionStep step;
  DType compute;
  bool bounded = false;  // softmax, gradient: keys outside [first, last] are hidden; else all are seen
  bool biased = false;   // softmax, gradient: a bias is added to the scaled scores; -inf hides
  bool capped = false;   // softmax, gradient: scaled scores s become cap tanh(s / cap) before the bias is added

  std::string key() const;
  std::string name() const;
};

// One call. Rows are `stride` elements apart; `columns` is a multiple of gemm_lanes(). Fields that a step does not name
// stay empty.
struct AttentionCall {
  void* tile = nullptr;        // softmax: scores, become p; gradient: likewise; combine, finish: o of the (left) node
  void* other = nullptr;       // gradient: dp, becomes ds; combine: o of the right node, which is only read
  const void* bias = nullptr;  // laid out as the tile
  const int32_t* first = nullptr;  // first and last key that a query sees; per column (softmax) or row (gradient)
  const int32_t* last = nullptr;
  void *m = nullptr, *l = nullptr;  // per column; finish turns m into the log-sum-exp
  const void *other_m = nullptr, *other_l = nullptr;
  const void *lse = nullptr, *delta = nullptr;  // gradient: per row
  int64_t rows = 0, columns = 0, stride = 0;
  int64_t first_key = 0;  // the key of row 0 (softmax) or column 0 (gradient)
  double scale = 1;
  double score_cap = 0;  // of a capped step
};

using AttentionEntry = void (*)(const AttentionCall*);

// The compiled step: from memory, else from disk, else compiled. Any thread.
AttentionEntry attention_kernel_for(const AttentionKernelSpec& spec, CpuTarget target = cpu_target());

}  // namespace tutti::codegen
