#include "tutti/core/expr.h"

#include <array>
#include <bit>

#include "tutti/core/scalar_eval.h"

namespace tutti {
namespace {

struct ScalarOpInfo {
  std::string_view name;
  int arity;
};

constexpr std::array<ScalarOpInfo, kNumScalarOps> kInfo = {{
    {"arg", 0},         {"param", 0},       {"constant", 0}, {"linear_index", 0}, {"inner_index", 0}, {"row_length", 0},
    {"reduced", 0},     {"neg", 1},         {"abs", 1},      {"sign", 1},         {"signbit", 1},     {"ceil", 1},
    {"floor", 1},       {"trunc", 1},       {"round", 1},    {"exp", 1},          {"exp2", 1},        {"expm1", 1},
    {"log", 1},         {"log2", 1},        {"log10", 1},    {"log1p", 1},        {"sqrt", 1},        {"rsqrt", 1},
    {"reciprocal", 1},  {"sin", 1},         {"cos", 1},      {"tan", 1},          {"asin", 1},        {"acos", 1},
    {"atan", 1},        {"sinh", 1},        {"cosh", 1},     {"tanh", 1},         {"asinh", 1},       {"acosh", 1},
    {"atanh", 1},       {"erf", 1},         {"erfcx", 1},    {"erfinv", 1},       {"sigmoid", 1},     {"lgamma", 1},
    {"logical_not", 1}, {"bitwise_not", 1}, {"isnan", 1},    {"isinf", 1},        {"add", 2},         {"sub", 2},
    {"mul", 2},         {"truediv", 2},     {"floordiv", 2}, {"truncdiv", 2},     {"remainder", 2},   {"fmod", 2},
    {"pow", 2},         {"maximum", 2},     {"minimum", 2},  {"fmax", 2},         {"fmin", 2},        {"atan2", 2},
    {"copysign", 2},    {"nextafter", 2},   {"eq", 2},       {"ne", 2},           {"lt", 2},          {"le", 2},
    {"gt", 2},          {"ge", 2},          {"bit_and", 2},  {"bit_or", 2},       {"bit_xor", 2},     {"shl", 2},
    {"shr", 2},         {"where", 3},       {"fma", 3},      {"cast", 1},         {"bitcast", 1},     {"philox", 3},
    {"stored", 1},
}};

bool gives_boolean(ScalarOp op) {
  return (op >= ScalarOp::eq && op <= ScalarOp::ge) || op == ScalarOp::signbit || op == ScalarOp::logical_not ||
         op == ScalarOp::isnan || op == ScalarOp::isinf;
}

Expr make(ScalarOp op, DType dtype, Expr a, Expr b = {}, Expr c = {}) {
  ExprNode node{.op = op, .dtype = dtype};
  node.operands[0] = a.id();
  if (b.pool()) node.operands[1] = b.id();
  if (c.pool()) node.operands[2] = c.id();
  return {a.pool(), a.pool()->push(node)};
}

Expr lift(double value, Expr like) { return like.pool()->constant(value, like.dtype()); }

}  // namespace

std::string_view name_of(ScalarOp op) { return kInfo[static_cast<size_t>(op)].name; }
int arity_of(ScalarOp op) { return kInfo[static_cast<size_t>(op)].arity; }

DType Expr::dtype() const { return pool_->nodes()[static_cast<size_t>(id_)].dtype; }

Expr apply_scalar(ScalarOp op, Expr a) { return make(op, gives_boolean(op) ? DType::boolean : a.dtype(), a); }

Expr apply_scalar(ScalarOp op, Expr a, Expr b) {
  TUTTI_ASSERT(a.pool() == b.pool(), "{} of expressions of two recipes", name_of(op));
  TUTTI_ASSERT(a.dtype() == b.dtype(), "{} of {} and {}", name_of(op), name_of(a.dtype()), name_of(b.dtype()));
  return make(op, gives_boolean(op) ? DType::boolean : a.dtype(), a, b);
}

Expr apply_scalar(ScalarOp op, Expr a, Expr b, Expr c) {
  return make(op, op == ScalarOp::where ? b.dtype() : a.dtype(), a, b, c);
}

Expr cast(Expr a, DType dtype) { return a.dtype() == dtype ? a : make(ScalarOp::cast, dtype, a); }
Expr stored(Expr a, DType storage) {
  TUTTI_ASSERT(a.dtype() == compute_dtype(storage), "{} stored as {}", name_of(a.dtype()), name_of(storage));
  if (compute_dtype(storage) == storage) return a;
  ExprNode node{.op = ScalarOp::stored, .dtype = a.dtype(), .index = static_cast<int32_t>(storage)};
  node.operands[0] = a.id();
  return {a.pool(), a.pool()->push(node)};
}
Expr where(Expr condition, Expr a, Expr b) { return apply_scalar(ScalarOp::where, condition, a, b); }

Expr operator+(Expr a, Expr b) { return apply_scalar(ScalarOp::add, a, b); }
Expr operator-(Expr a, Expr b) { return apply_scalar(ScalarOp::sub, a, b); }
Expr operator*(Expr a, Expr b) { return apply_scalar(ScalarOp::mul, a, b); }
Expr operator/(Expr a, Expr b) { return apply_scalar(ScalarOp::truediv, a, b); }
Expr operator-(Expr a) { return apply_scalar(ScalarOp::neg, a); }
Expr operator+(Expr a, double b) { return a + lift(b, a); }
Expr operator-(Expr a, double b) { return a - lift(b, a); }
Expr operator*(Expr a, double b) { return a * lift(b, a); }
Expr operator/(Expr a, double b) { return a / lift(b, a); }
Expr operator+(double a, Expr b) { return lift(a, b) + b; }
Expr operator-(double a, Expr b) { return lift(a, b) - b; }
Expr operator*(double a, Expr b) { return lift(a, b) * b; }
Expr operator/(double a, Expr b) { return lift(a, b) / b; }

Expr ExprPool::arg(int index, DType storage) { return leaf(ScalarOp::arg, compute_dtype(storage), index); }
Expr ExprPool::param(int index, DType dtype) { return leaf(ScalarOp::param, dtype, index); }

Expr ExprPool::constant(double value, DType dtype) {
  if (!is_floating(dtype)) {
    TUTTI_CHECK(value >= -0x1p63 && value < 0x1p63, "the constant {} does not fit {}", value, name_of(dtype));
    return constant_int(static_cast<int64_t>(value), dtype);
  }
  // An f32 node holds the f32 nearest to the given value.
  const double held = dtype == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
  return {this, push({.op = ScalarOp::constant, .dtype = dtype, .f = held})};
}

Expr ExprPool::constant_int(int64_t value, DType dtype) {
  if (is_floating(dtype)) return constant(static_cast<double>(value), dtype);
  uint64_t held = 0;  // wrapped to the width of the node
  store_from_int64(&held, dtype, value);
  return {this, push({.op = ScalarOp::constant, .dtype = dtype, .i = load_as_int64(&held, dtype)})};
}

Expr ExprPool::leaf(ScalarOp op, DType dtype, int index) {
  return {this, push({.op = op, .dtype = dtype, .index = index})};
}

int32_t ExprPool::push(const ExprNode& node) {
  ExprNode folded = node;
  fold_constants(folded, nodes_);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const ExprNode& n = nodes_[i];
    const bool same = n.op == folded.op && n.dtype == folded.dtype && n.index == folded.index && n.i == folded.i &&
                      std::bit_cast<uint64_t>(n.f) == std::bit_cast<uint64_t>(folded.f) &&
                      std::equal(n.operands, n.operands + 3, folded.operands);
    if (same) return static_cast<int32_t>(i);
  }
  nodes_.push_back(folded);
  return static_cast<int32_t>(nodes_.size()) - 1;
}

}  // namespace tutti
