#include "tutti/ops/binary.h"

#include <cmath>

#include "tutti/core/number.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/pointwise/binary_row.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using pointwise::BinaryInfo;
using pointwise::BinaryRule;
using pointwise::Range;

#define NAMES(op) {#op, #op "_scalar", #op "_of_scalar"}
#define VALUE(expression) [](double a, double b) -> double { return expression; }
#define INTEGER(expression) [](int64_t a, int64_t b) -> int64_t { return expression; }
#define COTANGENT(which)                                                                \
  static Tensor which([[maybe_unused]] const Tensor& g, [[maybe_unused]] const auto& a, \
                      [[maybe_unused]] const auto& b, [[maybe_unused]] const Tensor& y)

constexpr uint64_t u(int64_t x) { return static_cast<uint64_t>(x); }
constexpr int64_t s(uint64_t x) { return static_cast<int64_t>(x); }

Tensor square(const Tensor& x) { return mul(x, x); }
Scalar square(const Scalar& x) { return x.to_double() * x.to_double(); }
// An undefined cotangent stands for zero.
Tensor zero() { return {}; }

// ---- arithmetic -----------------------------------------------------------------------------------------------------

struct Add {
  static constexpr BinaryInfo info{.names = NAMES(add),
                                   .scalar = ScalarOp::add,
                                   .rule = BinaryRule::number,
                                   .value = VALUE(a + b),
                                   .integer = INTEGER(s(u(a) + u(b))),
                                   .partial = {"| affine", "| idem", "| idem"},
                                   .exact = true};
  COTANGENT(da) { return g; }
  COTANGENT(db) { return g; }
};

struct Sub {
  static constexpr BinaryInfo info{.names = NAMES(sub),
                                   .scalar = ScalarOp::sub,
                                   .rule = BinaryRule::difference,
                                   .value = VALUE(a - b),
                                   .integer = INTEGER(s(u(a) - u(b))),
                                   .partial = {"| affine", "| idem", "|"},
                                   .exact = true};
  COTANGENT(da) { return g; }
  COTANGENT(db) { return neg(g); }
};

struct Mul {
  static constexpr BinaryInfo info{.names = NAMES(mul),
                                   .scalar = ScalarOp::mul,
                                   .rule = BinaryRule::number,
                                   .value = VALUE(a * b),
                                   .integer = INTEGER(s(u(a) * u(b))),
                                   .partial = {"| bilin", "| lin", "| lin"},
                                   .exact = true,
                                   .saves_inputs = {3, 0, 0}};
  COTANGENT(da) { return mul(g, b); }
  COTANGENT(db) { return mul(g, a); }
};

struct TrueDiv {
  static constexpr BinaryInfo info{.names = NAMES(truediv),
                                   .scalar = ScalarOp::truediv,
                                   .rule = BinaryRule::floats,
                                   .value = VALUE(a / b),
                                   .integer = nullptr,
                                   .partial = {"| lin", "| lin", "|"},
                                   .opaque = 2,
                                   .exact = true,
                                   .saves_inputs = {3, 0, 1},
                                   .b = {0.5, 3}};
  COTANGENT(da) { return truediv(g, b); }
  COTANGENT(db) { return neg(mul(g, truediv(truediv(a, b), b))); }
};

struct FloorDiv {
  static constexpr BinaryInfo info{.names = NAMES(floordiv),
                                   .scalar = ScalarOp::floordiv,
                                   .rule = BinaryRule::division,
                                   .value = floordiv_f64,
                                   .integer = INTEGER(floordiv_i64(a, b)),
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .b = {0.5, 3}};
  COTANGENT(da) { return zero(); }
  COTANGENT(db) { return zero(); }
};

struct TruncDiv {
  static constexpr BinaryInfo info{.names = NAMES(truncdiv),
                                   .scalar = ScalarOp::truncdiv,
                                   .rule = BinaryRule::division,
                                   .value = VALUE(std::trunc(a / b)),
                                   .integer = INTEGER(truncdiv_i64(a, b)),
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .b = {0.5, 3}};
  COTANGENT(da) { return zero(); }
  COTANGENT(db) { return zero(); }
};

struct Remainder {
  static constexpr BinaryInfo info{.names = NAMES(remainder),
                                   .scalar = ScalarOp::remainder,
                                   .rule = BinaryRule::division,
                                   .value = remainder_f64,
                                   .integer = INTEGER(remainder_i64(a, b)),
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .saves_inputs = {3, 0, 1},
                                   .b = {0.5, 3}};
  COTANGENT(da) { return g; }
  COTANGENT(db) { return neg(mul(g, floordiv(a, b))); }
};

struct Fmod {
  static constexpr BinaryInfo info{.names = NAMES(fmod),
                                   .scalar = ScalarOp::fmod,
                                   .rule = BinaryRule::division,
                                   .value = VALUE(std::fmod(a, b)),
                                   .integer = INTEGER(fmod_i64(a, b)),
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .exact = true,
                                   .saves_inputs = {3, 0, 1},
                                   .b = {0.5, 3}};
  COTANGENT(da) { return g; }
  COTANGENT(db) { return neg(mul(g, truncdiv(a, b))); }
};

// b a^(b-1), and 0 for b == 0 whatever a is.
Tensor power_slope(const Tensor& a, const Tensor& b) { return where(eq(b, 0.0), 0.0, mul(b, pow(a, sub(b, 1.0)))); }
Tensor power_slope(const Tensor& a, const Scalar& b) {
  const double n = b.to_double();
  return n == 0 ? mul(a, 0.0) : mul(pow(a, n - 1), n);
}
// y log(a), and 0 for a == 0, where the power does not change.
Tensor exponent_slope(const Tensor& a, const Tensor& y) { return where(eq(a, 0.0), 0.0, mul(y, log(a))); }
Tensor exponent_slope(const Scalar& a, const Tensor& y) {
  return mul(y, a.to_double() == 0 ? 0.0 : std::log(a.to_double()));
}

struct Pow {
  static constexpr BinaryInfo info{.names = NAMES(pow),
                                   .scalar = ScalarOp::pow,
                                   .rule = BinaryRule::division,
                                   .value = VALUE(std::pow(a, b)),
                                   .integer = INTEGER(pow_i64(a, b)),
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .saves_inputs = {3, 1, 0},
                                   .saves_outputs = {1, 0, 1},
                                   .a = {0.5, 2.5},
                                   .b = {-2, 3},
                                   .ia = {-3, 4},
                                   .ib = {0, 5}};
  COTANGENT(da) { return mul(g, power_slope(a, b)); }
  COTANGENT(db) { return mul(g, exponent_slope(a, y)); }
};

// ---- extremes -------------------------------------------------------------------------------------------------------

// Equal operands share the cotangent.
Tensor shared(const Tensor& g, const auto& winner, const auto& loser) {
  return where(eq(winner, loser), mul(g, 0.5), where(gt(winner, loser), g, 0.0));
}

struct Maximum {
  static constexpr BinaryInfo info{.names = NAMES(maximum),
                                   .scalar = ScalarOp::maximum,
                                   .rule = BinaryRule::number,
                                   .value = VALUE(std::isnan(a) ? a
                                                  : a > b       ? a
                                                                : b),
                                   .integer = INTEGER(std::max(a, b)),
                                   .partial = {"| up2 +max | up2", "| up | up", "| up | up"},
                                   .exact = true,
                                   .saves_inputs = {3, 1, 1}};
  COTANGENT(da) { return shared(g, a, b); }
  COTANGENT(db) { return shared(g, b, a); }
};

struct Minimum {
  static constexpr BinaryInfo info{.names = NAMES(minimum),
                                   .scalar = ScalarOp::minimum,
                                   .rule = BinaryRule::number,
                                   .value = VALUE(std::isnan(a) ? a
                                                  : a < b       ? a
                                                                : b),
                                   .integer = INTEGER(std::min(a, b)),
                                   .partial = {"| up2 +min | up2", "| up | up", "| up | up"},
                                   .exact = true,
                                   .saves_inputs = {3, 1, 1}};
  COTANGENT(da) { return shared(g, neg_of(a), neg_of(b)); }
  COTANGENT(db) { return shared(g, neg_of(b), neg_of(a)); }
  static Tensor neg_of(const Tensor& x) { return neg(x); }
  static Scalar neg_of(const Scalar& x) { return -x.to_double(); }
};

// The operand that is the result takes the cotangent; of two equal ones the first.
struct Fmax {
  static constexpr BinaryInfo info{.names = NAMES(fmax),
                                   .scalar = ScalarOp::fmax,
                                   .rule = BinaryRule::number,
                                   .value = VALUE(std::fmax(a, b)),
                                   .integer = INTEGER(std::max(a, b)),
                                   .partial = {"| up2 +max | up2", "| up | up", "| up | up"},
                                   .exact = true,
                                   .saves_inputs = {1, 1, 0},
                                   .saves_outputs = {1, 1, 1}};
  COTANGENT(da) { return where(eq(y, a), g, 0.0); }
  COTANGENT(db) { return where(eq(y, a), 0.0, g); }
};

struct Fmin {
  static constexpr BinaryInfo info{.names = NAMES(fmin),
                                   .scalar = ScalarOp::fmin,
                                   .rule = BinaryRule::number,
                                   .value = VALUE(std::fmin(a, b)),
                                   .integer = INTEGER(std::min(a, b)),
                                   .partial = {"| up2 +min | up2", "| up | up", "| up | up"},
                                   .exact = true,
                                   .saves_inputs = {1, 1, 0},
                                   .saves_outputs = {1, 1, 1}};
  COTANGENT(da) { return where(eq(y, a), g, 0.0); }
  COTANGENT(db) { return where(eq(y, a), 0.0, g); }
};

// ---- other functions of floats --------------------------------------------------------------------------------------

struct Atan2 {
  static constexpr BinaryInfo info{.names = NAMES(atan2),
                                   .scalar = ScalarOp::atan2,
                                   .rule = BinaryRule::floats,
                                   .value = VALUE(std::atan2(a, b)),
                                   .integer = nullptr,
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .saves_inputs = {3, 1, 1}};
  COTANGENT(da) { return truediv(mul(g, b), add(square(a), square(b))); }
  COTANGENT(db) { return neg(truediv(mul(g, a), add(square(a), square(b)))); }
};

struct Copysign {
  static constexpr BinaryInfo info{.names = NAMES(copysign),
                                   .scalar = ScalarOp::copysign,
                                   .rule = BinaryRule::floats,
                                   .value = VALUE(std::copysign(a, b)),
                                   .integer = nullptr,
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .exact = true,
                                   .saves_inputs = {1, 1, 0},
                                   .saves_outputs = {1, 1, 0}};
  COTANGENT(da) { return where(eq(a, 0.0), 0.0, mul(g, truediv(y, a))); }
  COTANGENT(db) { return zero(); }
};

struct Nextafter {
  static constexpr BinaryInfo info{.names = NAMES(nextafter),
                                   .scalar = ScalarOp::nextafter,
                                   .rule = BinaryRule::neighbours,
                                   .value = VALUE(std::nextafter(a, b)),
                                   .integer = nullptr,
                                   .partial = {"|", "|", "|"},
                                   .opaque = 3,
                                   .exact = true,
                                   .no_gradient = "it steps from one float to the next"};
};

#undef NAMES
#undef VALUE
#undef INTEGER
#undef COTANGENT

}  // namespace

TUTTI_DEFINE_BINARY(add, Add)
TUTTI_DEFINE_BINARY(sub, Sub)
TUTTI_DEFINE_BINARY(mul, Mul)
TUTTI_DEFINE_BINARY(truediv, TrueDiv)
TUTTI_DEFINE_BINARY(floordiv, FloorDiv)
TUTTI_DEFINE_BINARY(truncdiv, TruncDiv)
TUTTI_DEFINE_BINARY(remainder, Remainder)
TUTTI_DEFINE_BINARY(fmod, Fmod)
TUTTI_DEFINE_BINARY(pow, Pow)
TUTTI_DEFINE_BINARY(maximum, Maximum)
TUTTI_DEFINE_BINARY(minimum, Minimum)
TUTTI_DEFINE_BINARY(fmax, Fmax)
TUTTI_DEFINE_BINARY(fmin, Fmin)
TUTTI_DEFINE_BINARY(atan2, Atan2)
TUTTI_DEFINE_BINARY(copysign, Copysign)
TUTTI_DEFINE_BINARY(nextafter, Nextafter)

}  // namespace tutti

TUTTI_OPS(binary, TUTTI_BINARY_ROWS(Add), TUTTI_BINARY_ROWS(Sub), TUTTI_BINARY_ROWS(Mul), TUTTI_BINARY_ROWS(TrueDiv),
          TUTTI_BINARY_ROWS(FloorDiv), TUTTI_BINARY_ROWS(TruncDiv), TUTTI_BINARY_ROWS(Remainder),
          TUTTI_BINARY_ROWS(Fmod), TUTTI_BINARY_ROWS(Pow), TUTTI_BINARY_ROWS(Maximum), TUTTI_BINARY_ROWS(Minimum),
          TUTTI_BINARY_ROWS(Fmax), TUTTI_BINARY_ROWS(Fmin), TUTTI_BINARY_ROWS(Atan2), TUTTI_BINARY_ROWS(Copysign),
          TUTTI_BINARY_ROWS(Nextafter))
