#include "tutti/ops/scalar.h"

namespace tutti {

std::string Scalar::to_string() const {
  if (is_symbolic_ && SymInt::of_raw(i_).is_symbolic()) return SymInt::of_raw(i_).to_string();
  if (kind_ == Kind::boolean) return i_ != 0 ? "true" : "false";
  return kind_ == Kind::integer ? fmt::format("{}", i_) : fmt::format("{}", to_double());
}

DType promote(DType tensor, const Scalar& scalar) {
  if (is_floating(tensor)) return tensor;
  if (scalar.is_floating()) return DType::f32;
  return tensor == DType::boolean && scalar.kind() == Scalar::Kind::integer ? DType::i64 : tensor;
}

void check_fits(const Scalar& scalar, DType dtype, const char* where) {
  if (!is_integral(dtype) || dtype == DType::i64 || scalar.is_floating()) return;
  const int bits = static_cast<int>(itemsize(dtype)) * 8;
  const bool is_signed = dtype != DType::u8;
  const int64_t lo = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t hi = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  const int64_t value = scalar.to_int64();
  TUTTI_CHECK(
      value >= lo && value <= hi,
      "{}: the scalar {} does not fit in {} ([{}, {}]), and a scalar never widens a tensor; cast() the tensor first",
      where, value, name_of(dtype), lo, hi);
}

}  // namespace tutti
