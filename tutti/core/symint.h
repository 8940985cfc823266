// SymInt: a size that is an integer, or a symbol of the tracer, in 8 trivially copyable bytes.
//
// Arithmetic follows Python. C++ `/` and `%` truncate and are therefore deleted: name the division that is meant. Shape
// arithmetic is checked: a result outside 64 bits throws SymIntOverflow. A comparison of symbols gives a SymBool;
// converting it to bool records a guard, which means that the trace is valid only for sizes with the same answer.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>

#include "tutti/core/plain_formatter.h"

namespace tutti {

class SymInt;

// The integer types, among which neither bool nor the character types are.
template <class T>
concept Integer =
    std::integral<T> && sizeof(T) <= sizeof(int64_t) && !std::same_as<T, bool> && !std::same_as<T, char> &&
    !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

[[noreturn, gnu::cold]] void throw_beyond_int64(uint64_t value);
// The value as an int64. UsageError for one above 2^63 - 1, which only an unsigned type has.
template <std::integral T>
constexpr int64_t to_int64(T value) {
  if constexpr (std::unsigned_integral<T> && sizeof(T) == sizeof(int64_t)) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) [[unlikely]]
      throw_beyond_int64(value);
  }
  return static_cast<int64_t>(value);
}

enum class SymOp : uint8_t {
  constant,
  symbol,
  add,
  sub,
  mul,
  neg,
  floordiv,
  truncdiv,
  remainder,
  fmod,
  pow,
  minimum,
  maximum,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  // Operations on floats, see symfloat.h. Values are the bits of doubles; those of comparisons are 0 or 1.
  real_eq,
  real_ne,
  real_lt,
  real_le,
  real_gt,
  real_ge,
  real_constant,
  real_of,
  real_quotient,  // of integers: the integer itself; the rounded quotient of two
  real_add,
  real_sub,
  real_mul,
  real_neg,
  real_truediv,
  real_floordiv,
  real_remainder,
  real_fmod,
  real_pow,
  real_minimum,
  real_maximum,
  real_sqrt
};
inline constexpr bool is_comparison(SymOp op) { return op >= SymOp::eq && op <= SymOp::real_ge; }
inline constexpr bool is_real(SymOp op) {
  return op >= SymOp::real_constant;
}  // whether the value is the bits of a double
inline constexpr bool is_constant(SymOp op) { return op == SymOp::constant || op == SymOp::real_constant; }

// The result of a comparison, possibly of symbols. Conversion to bool asks SymGraph for the answer at the traced sizes.
class SymBool {
 public:
  constexpr SymBool(bool value) : node_(value ? -1 : -2) {}  // NOLINT: a bool is a SymBool
  static SymBool of_node(int64_t node) { return SymBool(node, 0); }
  operator bool() const { return node_ < 0 ? node_ == -1 : guard(); }  // NOLINT: guarding is the point

 private:
  constexpr SymBool(int64_t node, int) : node_(node) {}
  bool guard() const;
  int64_t node_;
};

class SymInt {
 public:
  constexpr SymInt() = default;
  // Any integer type converts; UsageError for a value above 2^63 - 1.
  template <Integer T>
  constexpr SymInt(T value) : rep_(to_int64(value)) {  // NOLINT: an integer is a SymInt
    if constexpr (std::signed_integral<T> && sizeof(T) == sizeof(int64_t)) {
      if (is_reserved(rep_)) [[unlikely]]
        rep_ = intern_constant(rep_);
    }
  }

  bool is_symbolic() const { return is_reserved(rep_) && !is_interned_constant(); }
  // The integer. Throws UsageError, naming the expression, when this is symbolic.
  int64_t value() const { return is_reserved(rep_) ? slow_value() : rep_; }
  // The value in the running trace, recorded as a guard.
  int64_t guard_int() const;
  std::string to_string() const;

  friend SymInt operator+(SymInt a, SymInt b);
  friend SymInt operator-(SymInt a, SymInt b);
  friend SymInt operator*(SymInt a, SymInt b);
  friend SymInt operator-(SymInt a);
  SymInt& operator+=(SymInt b) { return *this = *this + b; }
  SymInt& operator-=(SymInt b) { return *this = *this - b; }
  SymInt& operator*=(SymInt b) { return *this = *this * b; }
  // Use floordiv, truncdiv, truediv, remainder or fmod: C++ truncates where Python floors.
  friend SymInt operator/(SymInt, SymInt) = delete;
  friend SymInt operator%(SymInt, SymInt) = delete;

  friend SymBool operator==(SymInt a, SymInt b) { return compare(SymOp::eq, a, b); }
  friend SymBool operator!=(SymInt a, SymInt b) { return compare(SymOp::ne, a, b); }
  friend SymBool operator<(SymInt a, SymInt b) { return compare(SymOp::lt, a, b); }
  friend SymBool operator<=(SymInt a, SymInt b) { return compare(SymOp::le, a, b); }
  friend SymBool operator>(SymInt a, SymInt b) { return compare(SymOp::gt, a, b); }
  friend SymBool operator>=(SymInt a, SymInt b) { return compare(SymOp::ge, a, b); }
  friend std::ostream& operator<<(std::ostream& out, SymInt value);  // to_string()

  // The raw 8 bytes: equal for equal integers and for the same symbol. For hashing and cache keys.
  int64_t raw() const { return rep_; }
  static SymInt of_raw(int64_t raw) {
    SymInt result;
    result.rep_ = raw;
    return result;
  }
  static SymInt of_node(int64_t node);  // node of SymGraph::current()
  int64_t node() const;                 // its node; a constant makes one

 private:
  // The lowest 2^32 values of int64 are reserved for nodes; an integer in that range is interned as a constant.
  static constexpr int64_t kReservedEnd = std::numeric_limits<int64_t>::min() + (int64_t{1} << 32);
  static constexpr bool is_reserved(int64_t rep) { return rep < kReservedEnd; }
  static SymBool compare(SymOp op, SymInt a, SymInt b);
  static int64_t intern_constant(int64_t value);
  bool is_interned_constant() const;
  int64_t slow_value() const;
  int64_t rep_ = 0;
};

SymInt floordiv(SymInt a, SymInt b);
SymInt truncdiv(SymInt a, SymInt b);
SymInt remainder(SymInt a, SymInt b);  // sign of the divisor
SymInt fmod(SymInt a, SymInt b);       // sign of the dividend
SymInt pow(SymInt base, SymInt exponent);
SymInt minimum(SymInt a, SymInt b);
SymInt maximum(SymInt a, SymInt b);

}  // namespace tutti

template <>
struct fmt::formatter<tutti::SymInt> : tutti::PlainFormatter {
  fmt::appender format(tutti::SymInt value, fmt::format_context& context) const;
};
