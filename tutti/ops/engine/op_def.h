// OpDef: everything Tutti knows about one op, as data.
//
// Autograd, the compiler, sharding, documentation and the contract tests are loops over the table of OpDefs; none of
// them names an op. A facet speaks in words of core and never sees LLVM, a graph or a mesh.
#pragma once

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

// One call: what every facet gets.
struct OpCall {
  const OpDef& op;
  std::span<const Tensor> inputs;
  const Attrs& attrs;
  const Tensor& operator[](size_t i) const { return inputs[i]; }
};

// Dtype and sizes of one output; the device is that of the first input unless `device` says otherwise.
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

// What the expressions of one kernel share. The recipes of several ops may be written into one body.
struct KernelBody {
  ExprPool pool;
  std::vector<codegen::Reduction> reductions;
};

// Writes the per-element expressions of an op. Called once per class of operands, not per call.
class RecipeBuilder {
 public:
  // inputs: what stands in the place of the operands' elements, as by in(); empty: arguments 0, 1, ... of the kernel.
  // first_param: the parameter of the kernel that is param(0) of the recipe.
  RecipeBuilder(const OpCall& call, std::span<const DType> outputs, KernelBody& body, std::span<const Expr> inputs = {},
                int first_param = 0)
      : call(call), output_dtypes(outputs), pool(body.pool), reductions(body.reductions), inputs_(inputs),
        first_param_(first_param) {}
  // Element of input `i`, widened to its compute dtype.
  Expr in(int i);
  Expr param(int i, DType dtype) { return pool.param(first_param_ + i, dtype); }
  Expr constant(double v, DType dtype) { return pool.constant(v, dtype); }
  // The result of a reduction over the row, in the order these are called.
  Expr reduce(codegen::ReduceOp op, Expr value, codegen::TreeKind tree = codegen::TreeKind::halving);
  // (m, l): maximum and sum of exponentials of `value` over the row, numerics contract N10.
  std::pair<Expr, Expr> softmax_stats(Expr value);
  // (m, r): the sum without the first maximum, whose exponential is 1: l = 1 + r without the rounding of a small r.
  std::pair<Expr, Expr> softmax_rest(Expr value, codegen::TreeKind tree = codegen::TreeKind::aligned);
  Expr row_length(DType dtype);  // number of elements of the row, converted
  Expr linear_index() { return pool.leaf(ScalarOp::linear_index, DType::i64); }
  Expr inner_index() { return pool.leaf(ScalarOp::inner_index, DType::i64); }
  // Output `k` in order; rounded to its storage type when stored.
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

// An operand that stands where memory says: its position along `dim` is an element of input `index` (i64 or i32), which
// the kernel holds against the size of `dim`.
struct Pick {
  enum class Loops : uint8_t {
    of_index,  // the dims of the index are the loops; the operand stands beside them, dim for dim (gather, scatter)
    spliced,   // the dims of the operand are the loops, with those of the index in the place of `dim` (rows of a table)
  };
  int8_t index;
  int64_t dim;
  Loops loops;
  int8_t read = -1;   // the input that is read there; -1: output 0 is written there
  int8_t start = -1;  // written: the input that output 0, a fresh tensor, is a copy of before
};

struct Recipe {
  codegen::LoopKind kind = codegen::LoopKind::pointwise;
  void (*build)(RecipeBuilder&) = nullptr;
  // Row, column and scan recipes: the dims that make up a row, normalized. Defaults to the last.
  Dims (*row_dims)(const OpCall&) = nullptr;
  // Row recipes: bit k is set when output k has one element per row.
  uint32_t per_row = 0;
  // Run-time scalars; returns how many were written (at most 16).
  int (*params)(const OpCall&, codegen::ParamValue*) = nullptr;
  // What in the attrs changes the code; calls with equal variants share a kernel.
  uint64_t (*variant)(const OpCall&) = nullptr;
  // Elements per leaf of the reduction tree; 0 or absent: 512.
  int64_t (*leaf)(const OpCall&) = nullptr;
  // Pointwise recipes over indices; calls of one op differ in `dim` at most.
  Pick (*pick)(const OpCall&) = nullptr;
  // With `pick`: throws the UsageError that names the first index out of range. The kernel checks every index by itself;
  // this runs when it met a bad one, or had no element to look at.
  void (*explain)(const OpCall&) = nullptr;
  // Elements move as integers of their width: no conversion touches them, and all dtypes of a width share a kernel.
  bool moves_bits = false;
};

// ---- blocks ---------------------------------------------------------------------------------------------------------

// A part of output 0 whose elements are final, while it is near. Rows are the positions of all dims but the last, in order.
struct OutputBlock {
  int64_t first_row, rows, first_column, columns;
  void* data;  // elements of the output's dtype; columns are neighbours
  int64_t row_stride;
};
using BlockConsumer = FunctionRef<void(const OutputBlock&)>;

// A part of input 0 that is wanted, counted as an OutputBlock is: neighbours in `data` are those along the columns, or, of an
// input whose elements are neighbours along its last dim but one, those along the rows.
struct InputBlock {
  int64_t first_row, rows, first_column, columns;
  void* data;  // room for elements of the input's dtype
  int64_t row_stride, column_stride;
};
using BlockProducer = FunctionRef<void(const InputBlock&)>;

// Who works on a call's operands while they are near; either may be absent.
struct BlockPartners {
  const BlockProducer* producer = nullptr;  // writes what it is asked for, from any thread; inputs[0] has no memory then
  const BlockConsumer* consumer = nullptr;  // gets every element of output 0 once, from any thread; it may overwrite what it gets
};

// ---- gradient -------------------------------------------------------------------------------------------------------

// What a vjp sees. Inputs and outputs that the op did not ask to save hold sizes and dtype only.
struct VjpCall {
  const OpDef& op;
  std::span<const Tensor> inputs;    // undefined where not saved
  std::span<const Tensor> outputs;   // undefined where not saved
  std::span<const Tensor> grads;     // cotangents of the outputs; undefined means zero
  const Attrs& attrs;
  std::span<const OutputMeta> input_metas;
  uint32_t needed;                   // bit i: input i wants its cotangent
  bool needs(int i) const { return needed >> i & 1; }
};

struct Gradient {
  // Writes the cotangent of each needed input; an undefined one means zero.
  void (*vjp)(const VjpCall&, std::span<Tensor> input_grads) = nullptr;
  uint32_t saves_inputs = 0;   // bit masks
  uint32_t saves_outputs = 0;
  uint32_t constant_inputs = 0;  // bits: float inputs that never take a cotangent (tables, statistics)
  const char* none = nullptr;  // instead of vjp: why there is no gradient
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

// Whether a compiled backward may compute what the forward made again, instead of keeping it until then.
enum class Recompute : uint8_t {
  by_kind,  // a recipe: cheap, scans costly, and never where it shrinks rows; a kernel of its own: never
  cheap,    // at memory speed, in the kernel that reads it
  costly,   // where a memory budget asks for it
  never,    // another run may give other bits, or does more than give its outputs
};

// A call for the contract tests.
struct Sample {
  std::string name;
  std::vector<Tensor> inputs;
  Attrs attrs;
};

// What a compiled function may do with calls of an `ordered` op besides making them one by one where they stand.
struct Transfer {
  bool starts_early = false;  // as soon as its inputs are there and the ordered calls before it have begun
  // The op that makes several calls of equal attrs at once, if there is one: their inputs, one block of bytes for the results.
  const OpDef* coalesced = nullptr;
  std::vector<int64_t> (*offsets)(const OpCall& coalesced) = nullptr;  // bytes from the start of the block, per result
};

// Largest accepted |x - y| <= absolute + relative * |y| against the reference, per compute dtype.
struct Tolerance {
  double f32 = 1e-5;
  double f64 = 1e-12;
};

// ---- the op ---------------------------------------------------------------------------------------------------------

struct OpDef {
  const char* name;
  int num_inputs;       // -1: any number
  int num_outputs = 1;
  // Output k is input writes[k], written in place (-1: a fresh tensor).
  int8_t writes[kMaxOutputs] = {-1, -1, -1, -1};
  // Input becomes[k] becomes output k, a fresh tensor or a view: it takes its memory, sizes and strides (-1: none does).
  int8_t becomes[kMaxOutputs] = {-1, -1, -1, -1};

  void (*infer)(const OpCall&, OutputMetas&);
  // Plain loops with double accumulation; defines what is right. Outputs are allocated, dense.
  void (*reference)(const OpCall&, std::span<const Tensor> outputs) = nullptr;
  Gradient gradient = {};
  // Gives the memory under the written inputs back, or takes it again; their elements mean nothing until they are written.
  bool resizes = false;
  // Calls of such ops talk to other ranks: they keep their order among themselves, and none is left out or repeated.
  bool ordered = false;
  Transfer transfer = {};
  // Looks at the data before an eager run (labels in range, indices in range); throws UsageError.
  void (*check)(const OpCall&) = nullptr;
  // Exactly one of these three says how it runs.
  Recipe recipe = {};
  void (*kernel)(const OpCall&, std::span<const Tensor> outputs) = nullptr;  // outputs allocated, dense
  // With `kernel`, of ops with one output: the same elements, beside a producer of input 0 and a consumer of the output. With a
  // consumer outputs[0] may be undefined: then its elements are in the blocks and nowhere else.
  void (*kernel_in_blocks)(const OpCall&, std::span<const Tensor> outputs, const BlockPartners& partners) = nullptr;
  Tensor (*view)(const OpCall&) = nullptr;                                   // shares the storage of input 0
  // Rule in the notation of docs/sharding_rules.md for the ranks of this call.
  std::string (*sharding)(const OpCall&) = nullptr;
  // Attrs of the call by which a rank computes its `part` of output 0 of the whole call; absent: the attrs as they are.
  Attrs (*local_attrs)(const OpCall& whole, const LocalBox& part) = nullptr;
  Recompute recompute = Recompute::by_kind;
  Cost (*cost)(const OpCall&) = nullptr;  // absent: one flop per output element, operands once
  std::vector<Sample> (*samples)() = nullptr;
  Tolerance tolerance = {};
};

// ---- the table ------------------------------------------------------------------------------------------------------

// Every op, in the order of file names then rows. Made by the build from the folder.
std::span<const OpDef* const> op_table();
// UsageError with the nearest name when there is none.
const OpDef& find_op(std::string_view name);
// Cost by the op's facet or the default.
Cost cost_of(const OpCall& call);

}  // namespace tutti

// Adds rows to the op table; once per file, named after it: TUTTI_OPS(unary, kNeg, kAbs).
#define TUTTI_OPS(stem, ...)                                             \
  namespace tutti::ops_table {                                           \
  std::span<const ::tutti::OpDef* const> stem##_rows();                  \
  std::span<const ::tutti::OpDef* const> stem##_rows() {                 \
    static const ::tutti::OpDef* const rows[] = {__VA_ARGS__};           \
    return rows;                                                         \
  }                                                                      \
  }
