#include "tutti/ops/scaled/scales.h"

#include <cmath>

#include "tutti/core/error.h"
#include "tutti/ops/reshape.h"

namespace tutti::scaled {

Tensor flat(const Tensor& t, DType dtype, const Tensor& x) {
  return t.defined() ? reshape(t, {-1}) : beside(x, nothing(dtype));
}

Tensor as_rows(const Tensor& x) {
  if (x.ndim() == 2) return x;
  SymInt rows = 1;
  for (int64_t d = 0; d + 1 < x.ndim(); ++d) rows = rows * x.size(d);
  return reshape(x, {rows, x.size(-1)});
}

float number_of(const Tensor& scale, float otherwise) { return scale.numel() == 0 ? otherwise : *scale.data<float>(); }
int32_t integer_of(const Tensor& zero_point) { return zero_point.numel() == 0 ? 0 : *zero_point.data<int32_t>(); }

void check_scale(const char* op, const Tensor& scale, const char* what, const SymInt& rows) {
  // One number first: the number of rows may be a symbol.
  TUTTI_CHECK(scale.defined() && scale.dtype() == DType::f32 &&
                  (numel_of(scale.sizes()) == 1 || numel_of(scale.sizes()) == rows),
              "{}: the scale of {} is {}; expected f32, one number{}", op, what, describe(scale),
              rows == 1 ? "" : fmt::format(" or {}", rows));
}

void check_zero_point(const char* op, const AffineScale& scale, const char* what, DType codes) {
  const Tensor& zero_point = scale.zero_point;
  if (!zero_point.defined()) return;
  TUTTI_CHECK(scale.defined(), "{}: {} has a zero point and no scale", op, what);
  TUTTI_CHECK(codes != DType::f8e4m3fn, "{}: codes of f8e4m3fn have no zero point, that of {} is {}", op, what,
              describe(zero_point));
  TUTTI_CHECK(zero_point.dtype() == DType::i32 && numel_of(zero_point.sizes()) == 1,
              "{}: the zero point of {} is {}; expected one i32", op, what, describe(zero_point));
}

void check_positive(const char* op, const OpCall& call, size_t input, const std::string& what) {
  const Tensor& scale = call[input];
  for (int64_t i = 0; i < scale.numel(); ++i) {
    const float value = scale.data<float>()[i * scale.strides()[0]];
    TUTTI_CHECK(value > 0 && std::isfinite(value) && std::isfinite(1.0F / value),
                "{}: the scale of {} is {} at {}; expected a positive number whose inverse is one, too", op, what,
                value, i);
  }
}

void check_within(const char* op, const OpCall& call, size_t input, DType codes, const std::string& what) {
  const int32_t lowest = codes == DType::u8 ? 0 : -128, highest = lowest + 255, value = integer_of(call[input]);
  TUTTI_CHECK(value >= lowest && value <= highest, "{}: the zero point of {} is {}; codes of {} are from {} to {}", op,
              what, value, name_of(codes), lowest, highest);
}

}  // namespace tutti::scaled
