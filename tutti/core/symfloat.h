// SymFloat: a host number that is a double, or a float expression over symbolic sizes.
//
// The arithmetic is that of eager kernels in f64 (core/scalar_eval.h), with Python's rule for zero divisors: dividing a
// host number by zero throws IntegerDivideByZero, whose text names ZeroDivisionError. A comparison gives a SymBool.
#pragma once

#include "tutti/core/symint.h"

namespace tutti {

class SymFloat {
 public:
  constexpr SymFloat() = default;
  constexpr SymFloat(double value) : value_(value) {}  // NOLINT: a double is a SymFloat
  SymFloat(SymInt value);                              // NOLINT: rounded to nearest
  static SymFloat of_node(int64_t node);               // node of SymGraph::current()

  bool is_symbolic() const { return node_ >= 0; }
  // The double. Throws UsageError, naming the expression, when this is symbolic.
  double value() const;
  // The value in the running trace, recorded as a guard.
  double guard_double() const;
  std::string to_string() const;
  int64_t node() const;  // its node; a constant makes one

  friend SymFloat operator+(SymFloat a, SymFloat b);
  friend SymFloat operator-(SymFloat a, SymFloat b);
  friend SymFloat operator*(SymFloat a, SymFloat b);
  friend SymFloat operator/(SymFloat a, SymFloat b);  // true division, as in Python
  friend SymFloat operator-(SymFloat a);
  friend SymBool operator==(SymFloat a, SymFloat b);
  friend SymBool operator!=(SymFloat a, SymFloat b);
  friend SymBool operator<(SymFloat a, SymFloat b);
  friend SymBool operator<=(SymFloat a, SymFloat b);
  friend SymBool operator>(SymFloat a, SymFloat b);
  friend SymBool operator>=(SymFloat a, SymFloat b);
  friend std::ostream& operator<<(std::ostream& out, SymFloat value);  // to_string()

 private:
  double value_ = 0;
  int64_t node_ = -1;
};

SymFloat truediv(SymFloat a, SymFloat b);
SymFloat truediv(SymInt a, SymInt b);  // the correctly rounded quotient of the integers
SymFloat floordiv(SymFloat a, SymFloat b);
SymFloat remainder(SymFloat a, SymFloat b);  // sign of the divisor
SymFloat fmod(SymFloat a, SymFloat b);       // sign of the dividend
SymFloat pow(SymFloat base, SymFloat exponent);
SymFloat minimum(SymFloat a, SymFloat b);
SymFloat maximum(SymFloat a, SymFloat b);
SymFloat sqrt(SymFloat a);

}  // namespace tutti

template <>
struct fmt::formatter<tutti::SymFloat> : tutti::PlainFormatter {
  fmt::appender format(tutti::SymFloat value, fmt::format_context& context) const;
};
