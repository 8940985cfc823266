// OpDef: the complete definition of an op, as data.
//
// Autograd, the compiler, sharding, documentation and the contract tests iterate over the table of OpDefs; none of
// them treats an op by name. The members (facets) of an OpDef use only types of core and tensor, never LLVM, graphs or
// meshes.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/codegen/kernel.h"
#include "tutti/core/expr.h"
#include "tutti/ops/engine/attrs.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct OpDef;

// A function of an op that only autograd, distributed tensors and tests read. The runtime of packages takes it from a
// row of the table and drops it, so that it is no part of that library.
#ifdef TUTTI_RUNTIME_ONLY
template <class Function>
struct BuildFacet {
  constexpr BuildFacet(Function) {}
  template <std::convertible_to<Function> F>
  constexpr BuildFacet(F&&) {}
};
#else
template <class Function>
using BuildFacet = Function;
#endif

// One call of an op, which is passed to every facet.
struct OpCall {
  const OpDef& op;
  std::span<const Tensor> inputs;
  const Attrs& attrs;
  const Tensor& operator[](size_t i) const { return inputs[i]; }
};

// Dtype and sizes of one output; its device is that of the first input.
struct OutputMeta {
  DType dtype = DType::f32;
  Shape sizes;
};
inline constexpr int kMaxOutputs = 4;
struct OutputMetas {
  OutputMeta meta[kMaxOutputs];
  int count = 0;
  void add(DType dtype, const Shape& sizes) { meta[count++] = {dtype, sizes}; }
};

// ---- recipe ---------------------------------------------------------------------------------------------------------

// The shared state of the expressions of one kernel. The recipes of several ops may be written into one body.
struct KernelBody {
  ExprPool pool;
  std::vector<codegen::Reduction> reductions;
};

// Builds the per-element expressions of an op. Recipes are built once per class of operands, not per call.
class RecipeBuilder {
 public:
  // inputs: expressions that in() returns for the operands; empty: arguments 0, 1, ... of the kernel.
  // first_param: the index of the kernel parameter that is param(0) of the recipe.
  RecipeBuilder(const OpCall& call, std::span<const DType> outputs, KernelBody& body, std::span<const Expr> inputs = {},
                int first_param = 0)
      : call(call),
        output_dtypes(outputs),
        pool(body.pool),
        reductions(body.reductions),
        inputs_(inputs),
        first_param_(first_param) {}
  // The element of input `i`, widened to its compute dtype.
  Expr in(int i);
  Expr param(int i, DType dtype) { return pool.param(first_param_ + i, dtype); }
  Expr constant(double v, DType dtype) { return pool.constant(v, dtype); }
  // Adds a reduction over the row and returns its result.
  Expr reduce(codegen::ReduceOp op, Expr value, codegen::TreeKind tree = codegen::TreeKind::halving);
  // (m, l): maximum and sum of exponentials of `value` over the row, numerics contract N10.
  std::pair<Expr, Expr> softmax_stats(Expr value);
  // (m, r): the sum without the first maximum, whose exponential is 1: l = 1 + r without the rounding of a small r.
  std::pair<Expr, Expr> softmax_rest(Expr value, codegen::TreeKind tree = codegen::TreeKind::aligned);
  Expr row_length(DType dtype);  // number of elements of the row, converted
  Expr linear_index() { return pool.leaf(ScalarOp::linear_index, DType::i64); }
  Expr inner_index() { return pool.leaf(ScalarOp::inner_index, DType::i64); }
  // Defines the next output; its value is rounded to the storage type when stored.
  void out(Expr value);

  const OpCall& call;
  std::span<const DType> output_dtypes;
  ExprPool& pool;
  std::vector<codegen::Reduction>& reductions;
  std::vector<Expr> results;

 private:
  std::span<const Expr> inputs_;
  int first_param_;
};

// An operand that is accessed indirectly: its position along `dim` is an element of input `index` (i64 or i32), which
// the kernel checks against the size of `dim`.
struct Pick {
  enum class Loops : uint8_t {
    of_index,  // the loops run over the dims of the index, which correspond to those of the operand (gather, scatter)
    spliced,  // the loops run over the dims of the operand, with those of the index in place of `dim` (rows of a table)
  };
  int8_t index;
  int64_t dim;
  Loops loops;
  int8_t read = -1;   // the input that is read indirectly; -1: output 0 is written indirectly
  int8_t start = -1;  // when output 0 is written: the input that it is first copied from
};

struct Recipe {
  codegen::LoopKind kind = codegen::LoopKind::pointwise;
  void (*build)(RecipeBuilder&) = nullptr;
  // Row, column and scan recipes: the dims that form a row, normalized. Default: the last dim.
  Dims (*row_dims)(const OpCall&) = nullptr;
  // Row recipes: bit k is set when output k has one element per row.
  uint32_t per_row = 0;
  // Run-time scalars; returns how many were written (at most 16).
  int (*params)(const OpCall&, codegen::ParamValue*) = nullptr;
  // A number for the part of the call that affects the code; calls with equal variants share a kernel. Default: the
  // hash of the rules and output dtypes among the fields of the attrs (attr_fields.h).
  uint64_t (*variant)(const OpCall&) = nullptr;
  // Elements per leaf of the reduction tree; 0 or absent: 512.
  int64_t (*leaf)(const OpCall&) = nullptr;
  // Pointwise recipes with indirect access; the picks of an op's calls may differ only in `dim`.
  Pick (*pick)(const OpCall&) = nullptr;
  // With `pick`: throws the UsageError that names the first index out of range. The kernel checks every index;
  // this runs when it found a bad one, or when there was no element to process.
  void (*explain)(const OpCall&) = nullptr;
  // Elements are moved as integers of their width, without conversion, and all dtypes of one width share a kernel.
  bool moves_bits = false;
};

// ---- blocks ---------------------------------------------------------------------------------------------------------

// A block of output 0 whose elements are final, while it is in the cache. Rows are the positions of all dims but the
// last, in order.
struct OutputBlock {
  int64_t first_row, rows, first_column, columns;
  void* data;  // elements of the output's dtype; columns are contiguous
  int64_t row_stride;
};
using BlockConsumer = FunctionRef<void(const OutputBlock&)>;

// A requested block of input 0, with rows and columns as in OutputBlock. `data` is contiguous along the columns, or
// along the rows if the input is contiguous along its last dim but one.
struct InputBlock {
  int64_t first_row, rows, first_column, columns;
  void* data;  // memory for elements of the input's dtype
  int64_t row_stride, column_stride;
};
using BlockProducer = FunctionRef<void(const InputBlock&)>;

// Callbacks that produce or consume blocks of a call's operands while these are in the cache; either may be null.
struct BlockPartners {
  const BlockProducer* producer = nullptr;  // writes requested blocks, on any thread; inputs[0] then has no memory
  const BlockConsumer* consumer =
      nullptr;  // gets every element of output 0 once, on any thread; may overwrite the blocks
};

// ---- gradient -------------------------------------------------------------------------------------------------------

// The arguments of a vjp. Inputs and outputs that the op does not save are undefined; input_metas has the inputs' sizes
// and dtypes.
struct VjpCall {
  const OpDef& op;
  std::span<const Tensor> inputs;   // undefined where not saved
  std::span<const Tensor> outputs;  // undefined where not saved
  std::span<const Tensor> grads;    // cotangents of the outputs; undefined means zero
  const Attrs& attrs;
  std::span<const OutputMeta> input_metas;
  uint32_t needed;  // bit i: the cotangent of input i is needed; the last bit is that of all inputs from 31 on
  bool needs(int i) const { return needed >> (i < 31 ? i : 31) & 1; }
};

struct Gradient {
  // Writes the cotangent of each needed input; an undefined one means zero.
  BuildFacet<void (*)(const VjpCall&, std::span<Tensor> input_grads)> vjp = nullptr;
  uint32_t saves_inputs = 0;  // bit masks
  uint32_t saves_outputs = 0;
  uint32_t constant_inputs = 0;  // bit mask of float inputs that never get a cotangent (tables, statistics)
  const char* none = nullptr;    // instead of vjp: the reason why there is no gradient
};

// ---- sharding -------------------------------------------------------------------------------------------------------

// The part of an output that one rank holds.
struct LocalBox {
  Extents sizes, offsets;
};

// ---- cost, samples --------------------------------------------------------------------------------------------------

struct Cost {
  double flops = 0;
  double bytes = 0;
};

// Whether a compiled backward may recompute an op of the forward instead of keeping its results.
enum class Recompute : uint8_t {
  by_kind,  // recipes are cheap, but scans are costly and recipes that reduce rows are never recomputed; other kernels:
            // never
  cheap,    // runs at memory speed inside the kernel that reads the result
  costly,   // recomputed only where the memory budget requires it
  never,    // running it again may give other bits, or has effects besides its outputs
};

// A call for the contract tests.
struct Sample {
  std::string name;
  std::vector<Tensor> inputs;
  Attrs attrs;
};

// One op for a call and its neighbours, which works on the part of a rank while others' are on their way.
struct JoinedOp {
  const OpDef* ops[kMaxOutputs - 1] = {};  // for one neighbour, two, three; null: none
  bool (*takes)(const OpCall& call, const OpCall& neighbour) = nullptr;
  // Returns the attrs of the joined call; neighbours for which they differ do not join.
  Attrs (*attrs)(const OpCall& call, const OpCall& neighbour) = nullptr;
};

// One op for several calls that share their first inputs, as products with the same x do: it takes these inputs once
// and then the others of each call in turn, and returns the results of the calls in that order, with their bits. The
// calls have equal attrs, and one result each.
struct SiblingOps {
  const OpDef* ops[kMaxOutputs - 1] = {};  // for two calls, three, four; null: none
  int shared_inputs = 1;
  // Why a call stays apart from another one with the same shared inputs and attrs; null: it does not.
  const char* (*apart)(const OpCall& call, const OpCall& other) = nullptr;
};

// How a compiled function may reorder and merge calls of an `ordered` op.
struct Transfer {
  bool starts_early =
      false;  // may start as soon as its inputs are available and all earlier ordered calls have started
  // The op that performs several calls with equal attrs at once, if there is one: it takes all their inputs and returns
  // one block of bytes with their results.
  const OpDef* coalesced = nullptr;
  std::vector<int64_t> (*offsets)(const OpCall& coalesced) = nullptr;  // bytes from the start of the block, per result
  // With calls that read the result as input 0: it takes the call's input and the others of the readers, and returns
  // the result and theirs.
  const JoinedOp* with_readers = nullptr;
  // With the call that makes the only input: it takes that call's inputs.
  const JoinedOp* with_producer = nullptr;
};

// The accepted error t per compute dtype: |x - y| <= t (1 + |y|) against the reference y. For narrow floats the
// relative part is at least one unit in their last place.
struct Tolerance {
  double f32 = 1e-5;
  double f64 = 1e-12;
};

// ---- the op ---------------------------------------------------------------------------------------------------------

struct OpDef {
  const char* name;
  int num_inputs;  // -1: any number
  int num_outputs = 1;
  // Output k is input writes[k], written in place (-1: a new tensor).
  int8_t writes[kMaxOutputs] = {-1, -1, -1, -1};
  // Input becomes[k] takes memory, sizes and strides of output k, which is a new tensor or a view (-1: no input does).
  int8_t becomes[kMaxOutputs] = {-1, -1, -1, -1};

  void (*infer)(const OpCall&, OutputMetas&);
  // Plain loops with double accumulation, which define the correct result. Outputs are allocated and dense.
  BuildFacet<void (*)(const OpCall&, std::span<const Tensor> outputs)> reference = nullptr;
  Gradient gradient = {};
  // Releases or reallocates the memory of the written inputs, whose elements are undefined until they are written.
  bool resizes = false;
  // Calls of such ops communicate with other ranks, or with the program around a compiled function: they keep their
  // order among themselves, and none is removed or repeated.
  bool ordered = false;
  // The kernel keeps handles on its inputs beyond the call. A compiled function then gives them memory of their own,
  // and a copy where others write that memory later.
  bool keeps_inputs = false;
  Transfer transfer = {};
  // Checks the data before an eager run (labels in range, indices in range); throws UsageError.
  void (*check)(const OpCall&) = nullptr;
  // Exactly one of recipe, kernel and view defines how the op runs.
  Recipe recipe = {};
  void (*kernel)(const OpCall&, std::span<const Tensor> outputs) = nullptr;  // outputs allocated, dense
  // Besides `kernel`, for ops with one output: the same computation with a producer of input 0 and a consumer of the
  // output. With a consumer outputs[0] may be undefined: its elements then exist only in the blocks.
  void (*kernel_in_blocks)(const OpCall&, std::span<const Tensor> outputs, const BlockPartners& partners) = nullptr;
  Tensor (*view)(const OpCall&) = nullptr;  // shares the storage of input 0
  // What a compiled function may run in place of several calls that share inputs.
  const SiblingOps* siblings = nullptr;
  // The sharding rule of this call in the notation of docs/sharding_rules.md.
  BuildFacet<std::string (*)(const OpCall&)> sharding = nullptr;
  // Whether the rule depends on floating numbers among the attrs, such as the value that a pad writes.
  bool sharding_reads_numbers = false;
  // The attrs with which a rank computes its `part` of output 0 of the whole call; null: the same attrs.
  BuildFacet<Attrs (*)(const OpCall& whole, const LocalBox& part)> local_attrs = nullptr;
  Recompute recompute = Recompute::by_kind;
  // The bytes that the kernel takes while it runs on so many threads, besides its outputs; null: few.
  int64_t (*room)(const OpCall&, int64_t threads) = nullptr;
  Cost (*cost)(const OpCall&) = nullptr;  // null: one flop per output element, each operand read or written once
  BuildFacet<std::vector<Sample> (*)()> samples = nullptr;
  Tolerance tolerance = {};
};

// ---- the table ------------------------------------------------------------------------------------------------------

// All ops, in the order of file names, then rows. Generated by the build from the folder.
std::span<const OpDef* const> op_table();
// The op with that name. UsageError, suggesting the nearest name, when there is none.
const OpDef& find_op(std::string_view name);
// The cost by the op's cost facet, or the default.
Cost cost_of(const OpCall& call);

}  // namespace tutti

// Adds rows to the op table. Used once per file and named after it: TUTTI_OPS(unary, kNeg, kAbs).
#define TUTTI_OPS(stem, ...)                                   \
  namespace tutti::ops_table {                                 \
  std::span<const ::tutti::OpDef* const> stem##_rows();        \
  std::span<const ::tutti::OpDef* const> stem##_rows() {       \
    static const ::tutti::OpDef* const rows[] = {__VA_ARGS__}; \
    return rows;                                               \
  }                                                            \
  }
