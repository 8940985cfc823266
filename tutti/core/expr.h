// Expr: scalar expressions, with which recipes describe what a kernel computes per element.
//
// A node has one dtype, which is a compute dtype (f64, f32, i64, i32, i16, i8, u8, boolean): storage types are widened
// when an argument is loaded and rounded when an output is stored. Every operation rounds once; `fma` is the only fused
// one (numerics contract, N1 and N2). Integer arithmetic follows core/number.h at the width of the node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/dtype.h"

namespace tutti {

enum class ScalarOp : uint8_t {
  // Leaves. `index` of the node selects the argument, parameter or reduction.
  arg,           // element of input `index`, widened to its compute dtype
  param,         // run-time scalar `index` of the call (f64 or i64), converted to the node's dtype
  constant,      // compile-time value
  linear_index,  // i64: position of the element in the row-major output (of the whole tensor, not the tile)
  inner_index,   // i64: position along the row (row and scan kernels)
  row_length,    // i64: number of elements of the row
  reduced,       // result of reduction `index` of a row kernel
  // Unary, float unless stated.
  neg,
  abs,
  sign,
  signbit,
  ceil,
  floor,
  trunc,
  round,  // round: half to even
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  erfcx,
  erfinv,
  sigmoid,
  lgamma,  // erfcx: exp(x^2) (1 - erf x)
  logical_not,
  bitwise_not,
  isnan,
  isinf,
  // Binary. Comparisons give boolean.
  add,
  sub,
  mul,
  truediv,
  floordiv,
  truncdiv,
  remainder,
  fmod,
  pow,
  maximum,
  minimum,  // a NaN operand gives NaN
  fmax,
  fmin,  // a NaN operand is ignored
  atan2,
  copysign,
  nextafter,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  bit_and,
  bit_or,
  bit_xor,
  shl,
  shr,
  // Ternary.
  where,  // a ? b : c
  fma,    // a * b + c, one rounding
  // Conversions to the node's dtype.
  cast,
  bitcast,
  // Philox4x32-10 of the operands (element index i64, key i64, counter-high i64): the u32 of that element as i64.
  philox,
  // The float after a store as dtype `index` and a load: rounded to that narrow float. The dtype of the node does not
  // change.
  stored,
};

inline constexpr int kNumScalarOps = static_cast<int>(ScalarOp::stored) + 1;
std::string_view name_of(ScalarOp op);
int arity_of(ScalarOp op);

struct ExprNode {
  ScalarOp op;
  DType dtype;
  int32_t index = 0;  // for leaves
  int32_t operands[3] = {0, 0, 0};
  double f = 0.0;  // constant of a float node
  int64_t i = 0;   // constant of an integer or boolean node
};

class ExprPool;

// A handle on one node of a pool. Operators build more nodes in the same pool; operands must agree in dtype.
class Expr {
 public:
  Expr() = default;
  Expr(ExprPool* pool, int32_t id) : pool_(pool), id_(id) {}
  int32_t id() const { return id_; }
  ExprPool* pool() const { return pool_; }
  DType dtype() const;

  friend Expr operator+(Expr a, Expr b);
  friend Expr operator-(Expr a, Expr b);
  friend Expr operator*(Expr a, Expr b);
  friend Expr operator/(Expr a, Expr b);  // true division
  friend Expr operator-(Expr a);
  // A number on the left or right becomes a constant of the other side's dtype.
  friend Expr operator+(Expr a, double b);
  friend Expr operator-(Expr a, double b);
  friend Expr operator*(Expr a, double b);
  friend Expr operator/(Expr a, double b);
  friend Expr operator+(double a, Expr b);
  friend Expr operator-(double a, Expr b);
  friend Expr operator*(double a, Expr b);
  friend Expr operator/(double a, Expr b);

 private:
  ExprPool* pool_ = nullptr;
  int32_t id_ = -1;
};

// Applies any ScalarOp. The result dtype is boolean for comparisons and predicates, else that of the operands.
Expr apply_scalar(ScalarOp op, Expr a);
Expr apply_scalar(ScalarOp op, Expr a, Expr b);
Expr apply_scalar(ScalarOp op, Expr a, Expr b, Expr c);
Expr cast(Expr a, DType dtype);
// The value of a load after `a` was stored as `storage`, whose compute dtype must be that of `a`. `a` itself if the
// store does not round.
Expr stored(Expr a, DType storage);
Expr where(Expr condition, Expr a, Expr b);

// Owns the nodes of one recipe. Not shared between threads while it is built.
class ExprPool {
 public:
  Expr arg(int index, DType storage);  // the node's dtype is compute_dtype(storage)
  Expr param(int index, DType dtype);
  Expr constant(double value, DType dtype);
  Expr constant_int(int64_t value, DType dtype);
  Expr leaf(ScalarOp op, DType dtype, int index = 0);
  const std::vector<ExprNode>& nodes() const { return nodes_; }
  int32_t push(const ExprNode& node);  // reuses an identical node and folds constants

 private:
  std::vector<ExprNode> nodes_;
};

}  // namespace tutti
