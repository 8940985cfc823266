// The codes of weights: what quantize_() stores.
#pragma once

#include <string>

#include "tutti/ops/scaled_linear.h"
#include "tutti/ops/weight_only_linear.h"

namespace tutti::nn {

// UsageError, naming `what`, unless the weight is finite floats [out, in].
void check_numbers(const Tensor& weight, const std::string& what);
// Rows of floats [out, in] as codes of i8 or f8e4m3fn, each with the scale of its largest magnitude, as scaled_linear()
// rounds rows of x. A row of zeros gets scale 1. UsageError as above.
ScaledWeight coded_rows(const Tensor& weight, DType codes, const std::string& what);
// Codes of 4 bits in groups of `group` elements: the smallest number of a group is code 0, the largest code 15.
// UsageError as above, and for rows that are not whole groups of a multiple of 8 elements.
CodedWeight coded_groups(const Tensor& weight, int64_t group, const std::string& what);

// The numbers that the codes stand for, f32 [out, in].
Tensor decoded(const ScaledWeight& weight);
Tensor decoded(const CodedWeight& weight);

}  // namespace tutti::nn
