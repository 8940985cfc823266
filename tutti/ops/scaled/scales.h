// Scales and zero points among the inputs of an op: one number each, or none (no elements).
#pragma once

#include <string>

#include "tutti/ops/affine_scale.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::scaled {

inline Tensor nothing(DType dtype) { return Tensor::empty({0}, dtype); }
// As inputs of an op that also takes x: [elements], or nothing.
Tensor flat(const Tensor& t, DType dtype, const Tensor& x);

// x [..., k] as [rows, k], also where k is 0.
Tensor as_rows(const Tensor& x);

float number_of(const Tensor& scale, float otherwise = 1);
int32_t integer_of(const Tensor& zero_point);  // 0 where there is none

// UsageErrors that name `op` and `what` the scale is of. The first two look at shapes and dtypes, the others at data.
void check_scale(const char* op, const Tensor& scale, const char* what, const SymInt& rows);
void check_zero_point(const char* op, const AffineScale& scale, const char* what, DType codes);
void check_positive(const char* op, const OpCall& call, size_t input, const std::string& what);
void check_within(const char* op, const OpCall& call, size_t input, DType codes, const std::string& what);

}  // namespace tutti::scaled
