// Matrix products.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Which summation tree a contraction follows (numerics contract, N3 and N3t).
enum class ContractionAxis : int8_t {
  features,  // leaves of at most 128 elements
  tokens,    // leaves of token_grain() positions
};

struct MatmulOptions {
  std::optional<DType> out_dtype;  // default: the common type. f32 keeps a partial value unrounded (N4)
  ContractionAxis axis = ContractionAxis::features;
};

// Matrix product over the last two dims, batch dims broadcast; accumulates in f32 (f64 when an operand is f64) along the
// tree of the contraction and rounds once.
// Shapes: a [..., m, k], b [..., k, n] -> [..., m, n]; a 1-D operand is a row (a) or column (b) that is dropped again.
// Dtypes: any two floats. Errors: inner sizes differ; integer operands. Source: definition.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
// Batched matrix product of two 3-D tensors with equal batch: [b, m, k] x [b, k, n] -> [b, m, n].
Tensor bmm(const Tensor& a, const Tensor& b);
// x times the transpose of `weight`, the leading dims of x being tokens. Shapes: x [..., in], weight [out, in] ->
// [..., out]. The gradient of `weight` is f32 and sums over tokens in the canonical order.
Tensor linear(const Tensor& x, const Tensor& weight);

}  // namespace tutti
