#include "tutti/core/scalar_eval.h"

#include <cmath>
#include <limits>

#include "tutti/core/number.h"

namespace tutti {
namespace {

// The integer at the width of `dtype`, wrapped.
int64_t wrap(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::i32:
      return static_cast<int32_t>(value);
    case DType::i16:
      return static_cast<int16_t>(value);
    case DType::i8:
      return static_cast<int8_t>(value);
    case DType::u8:
      return static_cast<uint8_t>(value);
    case DType::boolean:
      return value != 0;
    default:
      return value;
  }
}

double rounded(double value, DType dtype) { return dtype == DType::f32 ? static_cast<float>(value) : value; }

int64_t wrapping(ScalarOp op, int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == ScalarOp::add ? x + y : op == ScalarOp::sub ? x - y : x * y);
}

std::optional<int64_t> integer_op(ScalarOp op, int64_t a, int64_t b) {
  const bool divides =
      op == ScalarOp::floordiv || op == ScalarOp::truncdiv || op == ScalarOp::remainder || op == ScalarOp::fmod;
  if (divides && b == 0) throw IntegerDivideByZero(name_of(op));
  switch (op) {
    case ScalarOp::neg:
      return wrapping(ScalarOp::sub, 0, a);
    case ScalarOp::abs:
      return a < 0 ? wrapping(ScalarOp::sub, 0, a) : a;
    case ScalarOp::sign:
      return (a > 0) - (a < 0);
    case ScalarOp::bitwise_not:
      return ~a;
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
      return wrapping(op, a, b);
    case ScalarOp::floordiv:
      return floordiv_i64(a, b);
    case ScalarOp::truncdiv:
      return truncdiv_i64(a, b);
    case ScalarOp::remainder:
      return remainder_i64(a, b);
    case ScalarOp::fmod:
      return fmod_i64(a, b);
    case ScalarOp::pow:
      return pow_i64(a, b);
    case ScalarOp::maximum:
      return std::max(a, b);
    case ScalarOp::minimum:
      return std::min(a, b);
    case ScalarOp::bit_and:
      return a & b;
    case ScalarOp::bit_or:
      return a | b;
    case ScalarOp::bit_xor:
      return a ^ b;
    default:
      return std::nullopt;
  }
}

std::optional<double> float_op(ScalarOp op, DType dtype, double a, double b) {
  const bool single = dtype == DType::f32;
  switch (op) {
    case ScalarOp::neg:
      return -a;
    case ScalarOp::abs:
      return std::fabs(a);
    case ScalarOp::ceil:
      return std::ceil(a);
    case ScalarOp::floor:
      return std::floor(a);
    case ScalarOp::trunc:
      return std::trunc(a);
    case ScalarOp::sqrt:
      return single ? std::sqrt(static_cast<float>(a)) : std::sqrt(a);
    // f32 operands make these exact in double or correctly rounded twice without harm (53 >= 2 * 24 + 2).
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::truediv:
      return a / b;
    case ScalarOp::copysign:
      return std::copysign(a, b);
    case ScalarOp::fmod:
      return std::fmod(a, b);
    case ScalarOp::remainder:
      return single ? std::nullopt : std::optional(remainder_f64(a, b));
    case ScalarOp::floordiv:
      return single ? std::nullopt : std::optional(floordiv_f64(a, b));
    default:
      return std::nullopt;
  }
}

template <class T>
std::optional<int64_t> comparison(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::eq:
      return a == b;
    case ScalarOp::ne:
      return a != b;
    case ScalarOp::lt:
      return a < b;
    case ScalarOp::le:
      return a <= b;
    case ScalarOp::gt:
      return a > b;
    case ScalarOp::ge:
      return a >= b;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<ScalarValue> evaluate_scalar(ScalarOp op, DType result, const ScalarValue* operands, int count) {
  if (count == 0 || op == ScalarOp::where || op == ScalarOp::fma || op == ScalarOp::bitcast || op == ScalarOp::stored ||
      op == ScalarOp::philox)
    return std::nullopt;
  const ScalarValue& a = operands[0];
  const ScalarValue& b = operands[count > 1 ? 1 : 0];
  ScalarValue out{.dtype = result};
  const bool from_float = is_floating(a.dtype);
  if (op == ScalarOp::cast) {
    if (from_float && !is_floating(result)) return std::nullopt;  // the kernel's rule for out-of-range values decides
    out.f = rounded(from_float ? a.f : static_cast<double>(a.i), result);
    out.i = is_floating(result) ? 0 : wrap(a.i, result);
    // int64 -> f32 must round once, not through double.
    if (!from_float && result == DType::f32) out.f = static_cast<float>(a.i);
    return out;
  }
  if (const auto truth = from_float ? comparison(op, a.f, b.f) : comparison(op, a.i, b.i)) {
    out.i = *truth;
    return out;
  }
  if (from_float) {
    const auto value = float_op(op, result, a.f, b.f);
    if (!value) return std::nullopt;
    out.f = rounded(*value, result);
    return out;
  }
  if (!is_integral(result)) return std::nullopt;
  const auto value = integer_op(op, a.i, b.i);
  if (!value) return std::nullopt;
  out.i = wrap(*value, result);
  return out;
}

void fold_constants(ExprNode& node, const std::vector<ExprNode>& nodes) {
  const int count = arity_of(node.op);
  if (count == 0) return;
  ScalarValue values[3];
  for (int k = 0; k < count; ++k) {
    const ExprNode& operand = nodes[static_cast<size_t>(node.operands[k])];
    if (operand.op != ScalarOp::constant) return;
    values[k] = {operand.dtype, operand.f, operand.i};
  }
  try {
    if (const auto value = evaluate_scalar(node.op, node.dtype, values, count))
      node = {.op = ScalarOp::constant, .dtype = node.dtype, .f = value->f, .i = value->i};
  } catch (const IntegerDivideByZero&) {
    return;
  }
}

}  // namespace tutti
