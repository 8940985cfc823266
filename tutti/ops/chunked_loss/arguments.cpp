#include "tutti/ops/chunked_loss/arguments.h"

#include <cmath>

#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/reshape.h"

namespace tutti::chunked_loss {

bool is_float(const Tensor& t) { return is_floating(t.dtype()) && !is_fp8(t.dtype()); }

void check_operands(const Tensor& x, const Tensor& weight, const Tensor& bias, const char* name) {
  TUTTI_CHECK(x.ndim() >= 1 && weight.ndim() == 2 && x.size(-1) == weight.size(1) && is_float(x) && is_float(weight) &&
                  (x.dtype() == DType::f64) == (weight.dtype() == DType::f64),
              "{}: input is {}, weight {}; expected floats [..., F] and [V, F], both f64 or neither", name, describe(x),
              describe(weight));
  TUTTI_CHECK(weight.size(0) >= 1, "{}: weight is {}: there is no class", name, describe(weight));
  if (!bias.defined()) return;
  TUTTI_CHECK(bias.ndim() == 1 && bias.size(0) == weight.size(0) && is_float(bias) &&
                  (bias.dtype() != DType::f64 || x.dtype() == DType::f64),
              "{}: bias is {}; expected floats [{}], f64 with f64 operands only", name, describe(bias), weight.size(0));
}

LossAttrs checked_attrs(const Tensor& x, const Tensor& weight, DType logits, double softcap, int64_t max_bytes,
                        int64_t chunk_rows, int64_t chunk_classes, const char* name) {
  TUTTI_CHECK(logits == DType::f32 || logits == x.dtype() || logits == weight.dtype(),
              "{}: logits_dtype is {}; expected f32 or the dtype of input or weight, {} and {}", name, name_of(logits),
              name_of(x.dtype()), name_of(weight.dtype()));
  TUTTI_CHECK(softcap >= 0 && std::isfinite(softcap),
              "{}: softcap = {}; expected a positive bound of logits, or 0 for none", name, softcap);
  TUTTI_CHECK(
      max_bytes > 0 && chunk_rows >= 0 && chunk_classes >= 0,
      "{}: max_bytes = {}, chunk_rows = {}, chunk_classes = {}; expected a positive bound, and sizes of chunks or 0",
      name, max_bytes, chunk_rows, chunk_classes);
  return {
      .ignore_index = kIgnoreLabel,
      .max_bytes = max_bytes,
      .chunk_rows = chunk_rows,
      .chunk_classes = chunk_classes,
      .softcap = softcap,
      .logits = x.dtype() == DType::f64 ? DType::f64 : logits};  // f64 operands have f64 logits, whatever is asked for
}

Tensor as_column(const Tensor& t) { return reshape(t, {-1, 1}); }
Tensor or_none(const Tensor& t, const Tensor& x, const Shape& sizes, DType dtype) {
  return t.defined() ? t : full_beside(x, sizes, 0.0, dtype);
}

}  // namespace tutti::chunked_loss
