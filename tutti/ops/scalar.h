// Scalar: a host number as an operand of a tensor op, with its kind (boolean, integer or floating).
//
// A scalar never widens a tensor within its kind: only a scalar of a higher kind (bool < integer < float) changes the
// type of the result, to the default of that kind, i64 or f32.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>

#include "tutti/core/dtype.h"
#include "tutti/core/symfloat.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {

class Scalar {
 public:
  enum class Kind : uint8_t { boolean, integer, floating };

  Scalar() = default;  // integer 0
  template <std::same_as<bool> T>
  constexpr Scalar(T value) : i_(value), kind_(Kind::boolean) {}  // NOLINT: a number is a Scalar
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  constexpr Scalar(T value) : i_(tutti::to_int64(value)), kind_(Kind::integer) {}  // NOLINT
  template <std::floating_point T>
  constexpr Scalar(T value) : f_(static_cast<double>(value)), kind_(Kind::floating) {}  // NOLINT

  // A size, or a number that depends on sizes. Reading a symbolic one records a guard.
  Scalar(SymInt value)
      : i_(value.is_symbolic() ? value.raw() : value.value()),
        kind_(Kind::integer),
        is_symbolic_(value.is_symbolic()) {}  // NOLINT
  Scalar(SymFloat value)                      // NOLINT
      : f_(value.is_symbolic() ? 0 : value.value()),
        i_(value.is_symbolic() ? SymInt::of_node(value.node()).raw() : 0),
        kind_(Kind::floating),
        is_symbolic_(value.is_symbolic()) {}

  constexpr Kind kind() const { return kind_; }
  // A number that depends on symbolic sizes: its node. The others have none.
  constexpr bool is_symbolic() const { return is_symbolic_; }
  SymInt symbol() const { return SymInt::of_raw(i_); }
  // Takes the value of its symbol, which for a floating number is the bits of a double; without effect when map returns
  // a symbol.
  void map_symbol(FunctionRef<SymInt(SymInt)> map) {
    if (!is_symbolic_) return;
    const SymInt value = map(symbol());
    if (value.is_symbolic()) return;
    i_ = value.value();
    is_symbolic_ = false;
    if (is_floating()) f_ = std::bit_cast<double>(i_), i_ = 0;
  }
  // 64 bits that are equal for equal numbers of one kind.
  constexpr uint64_t raw() const {
    return is_floating() && !is_symbolic_ ? std::bit_cast<uint64_t>(f_) : static_cast<uint64_t>(i_);
  }
  constexpr bool is_floating() const { return kind_ == Kind::floating; }
  constexpr double to_double() const { return is_floating() ? floating() : static_cast<double>(integer()); }
  constexpr int64_t to_int64() const { return is_floating() ? static_cast<int64_t>(floating()) : integer(); }
  std::string to_string() const;

 private:
  constexpr int64_t integer() const { return is_symbolic_ ? SymInt::of_raw(i_).guard_int() : i_; }
  constexpr double floating() const { return is_symbolic_ ? std::bit_cast<double>(integer()) : f_; }

  double f_ = 0.0;
  int64_t i_ = 0;  // for a symbolic number its node as a SymInt
  Kind kind_ = Kind::integer;
  bool is_symbolic_ = false;
};

// The result dtype when a tensor of dtype `tensor` is combined with `scalar`.
DType promote(DType tensor, const Scalar& scalar);

// UsageError, whose message begins with `where`, when the integer type `dtype` cannot represent `scalar`.
void check_fits(const Scalar& scalar, DType dtype, const char* where);

}  // namespace tutti
