// Kernels: what the code generator compiles and how a compiled kernel is called.
//
// A KernelSpec says what is computed per element (Expr nodes), how each operand moves along the inner loop, and which
// reductions a row needs. It never holds a size: one compiled kernel serves every shape of its class. Kernels are
// compiled through LLVM once per process, kept on disk across processes, and may be called from any number of threads
// at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/core/expr.h"

namespace tutti::codegen {

// How an operand's address moves from one inner element to the next.
enum class StrideClass : uint8_t {
  broadcast,   // stays: one value for the whole row
  contiguous,  // next element
  strided,     // by a run-time stride
};

struct OperandSpec {
  DType dtype;  // storage type in memory
  StrideClass inner;
  // Picked operands (gather, scatter): the input, i64 or i32, whose element at (o, i) times OperandCall::pick is added
  // to this operand's address. -1: none. An index outside [0, extent) sets bit 2 of the error flag and reaches no
  // memory: with an index that stays along the row the row is left out; else the element reads 0 or is not written.
  // Elements are written in row-major order of (o, i): where picked outputs meet, the last one stays.
  int8_t index = -1;
  // Outputs of column kernels: an element for each of the reduced dim instead of one for all.
  bool along_reduced = false;
};

enum class LoopKind : uint8_t {
  // out[o, i] = f(args[o, i]) for o < n_outer, i < n_inner.
  pointwise,
  // For each row o: the reductions over its n_inner elements in order, then the outputs. An output with StrideClass
  // broadcast is written once per row (from reductions, params and broadcast arguments only).
  row,
  // Reduction over a dim that is not the inner one: for each o and i, the reductions over n_reduce elements (stride
  // `reduce`), vectors along i. Outputs are per (o, i) and may use reductions, params only; those with `along_reduced`
  // are
  // per element and may use elements, too.
  column,
  // For each row o: outputs hold the running combination of the reductions along i (inclusive scan, left to right,
  // one chain): out[o, i] = expr(reduced...), where `reduced k` is the value after element i.
  scan,
};

enum class ReduceOp : uint8_t {
  sum,
  prod,
  max,
  min,  // NaN wins max and min; identity of sum is -0.0 (integers: 0)
  argmax,
  argmin,  // i64 index of the first extreme; the first NaN wins
  any,
  all,           // boolean
  softmax_max,   // m of the softmax monoid (m, l) over value x
  softmax_sum,   // l of the same monoid; must directly follow softmax_max with the same value node
  softmax_rest,  // r = l - 1 instead of l, to full precision: the first maximum is left out; follows softmax_max alike
};

// How the elements of a reduction are combined (numerics contract, N3 and N10).
enum class TreeKind : uint8_t {
  halving,  // n splits into ceil(n/2) and floor(n/2) until n <= leaf; a leaf is 16 lanes combined by halving
  aligned,  // leaves are [k*leaf, (k+1)*leaf), combined in the power-of-two aligned tree anchored at element 0
};

struct Reduction {
  ReduceOp op;
  TreeKind tree = TreeKind::halving;
  int32_t value;  // node that gives the element
};

struct KernelSpec {
  LoopKind kind = LoopKind::pointwise;
  std::vector<OperandSpec> inputs;
  std::vector<OperandSpec> outputs;
  std::vector<ExprNode> nodes;
  std::vector<Reduction> reductions;
  std::vector<int32_t> results;  // node stored to output k, rounded to its storage type
  std::string name;              // for people: traces, dumps; not part of the key

  // Whether every element of a row has an index of its own, or all have one.
  bool picks_per_element(const OperandSpec& operand) const {
    return operand.index >= 0 && inputs[static_cast<size_t>(operand.index)].inner != StrideClass::broadcast;
  }
  // Whether the operand's address changes along the inner loop.
  bool moves_along_row(const OperandSpec& operand) const {
    return operand.inner != StrideClass::broadcast || picks_per_element(operand);
  }

  // All that determines the machine code, as bytes; equal keys mean equal kernels.
  std::string key() const;
};

// Errors that a kernel reports in KernelCall::error.
inline constexpr uint32_t kDividedByZero = 1;
inline constexpr uint32_t kIndexOutOfRange = 2;

union ParamValue {
  double f;
  int64_t i;
};

// Elements, not bytes, in every stride. Operand order: inputs then outputs.
struct OperandCall {
  void* data;
  int64_t outer = 0;   // stride from one o to the next
  int64_t inner = 0;   // used by StrideClass::strided
  int64_t reduce = 0;  // column kernels: stride along the reduced dim
  int64_t pick = 0;    // picked operands: stride from one index to the next
  int64_t extent = 0;  // and the number of legal indices, 0 or more
};

struct KernelCall {
  const OperandCall* operands;
  const ParamValue* params;
  int64_t n_outer = 1;
  int64_t n_inner = 0;
  int64_t n_reduce = 0;
  int64_t leaf = 512;       // elements per leaf of the reduction tree
  int64_t first_index = 0;  // linear_index of element (0, 0); (o, i) has first_index + o * index_outer + i
  int64_t index_outer = 0;
  // Bits the kernel sets: kDividedByZero, kIndexOutOfRange. Atomically: calls on several threads may share it.
  uint32_t* error;
};

using KernelEntry = void (*)(const KernelCall*);

// A compiled kernel; lives as long as the process.
struct Kernel {
  KernelEntry entry;
  std::string name;
  double compile_ms;  // 0 when it came from the disk cache
};

// The kernel of `spec`: from memory, else from disk, else compiled. Any thread.
const Kernel& kernel_for(const KernelSpec& spec);

struct CacheStatistics {
  int64_t memory_hits = 0, disk_hits = 0, compiled = 0;
  double compile_ms = 0.0;
};
CacheStatistics cache_statistics();

}  // namespace tutti::codegen
