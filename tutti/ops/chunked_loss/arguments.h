// The checks of the public functions of linear cross entropy, and the inputs that they make.
#pragma once

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

bool is_float(const Tensor& t);
// UsageError, in the name of the function `name`, unless x is [..., F], weight [V, F] with V >= 1 and bias, if defined,
// [V].
void check_operands(const Tensor& x, const Tensor& weight, const Tensor& bias, const char* name);

// `Options`: those of linear_cross_entropy and of its shards, which have these names in common.
LossAttrs checked_attrs(const Tensor& x, const Tensor& weight, DType logits, double softcap, int64_t max_bytes,
                        int64_t chunk_rows, int64_t chunk_classes, const char* name);
template <class Options>
LossAttrs checked_attrs(const Tensor& x, const Tensor& weight, const Options& o, const char* name) {
  check_operands(x, weight, o.bias, name);
  return checked_attrs(x, weight, o.logits_dtype, o.softcap, o.max_bytes, o.chunk_rows, o.chunk_classes, name);
}

Tensor as_column(const Tensor& t);
// The place of an optional input that is absent is taken by a tensor without elements, as an operand beside `x`.
Tensor or_none(const Tensor& t, const Tensor& x, const Shape& sizes, DType dtype);

}  // namespace tutti::chunked_loss
