// Matrix products.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct OpCall;

// Which summation tree a contraction follows (numerics contract, N3 and N3t).
enum class ContractionAxis : int8_t {
  features,  // leaves of at most 128 elements
  tokens,    // leaves of token_grain() positions
};

struct MatmulOptions {
  std::optional<DType> out_dtype;  // default: the common type. f32 leaves a partial sum unrounded (N4)
  ContractionAxis axis = ContractionAxis::features;
};

// The matrix product over the last two dims; batch dims broadcast. Accumulates in f32 (f64 when an operand is f64)
// along the tree of the contraction and rounds once. Shapes: a [..., m, k], b [..., k, n] -> [..., m, n]; a 1-D operand
// counts as a row (a) or a column (b), and that dim is removed from the result. Dtypes: any two floats. UsageError when
// the inner sizes differ or for integer operands. Source: definition.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
// Writes the product of two matrices to `out` [m, n], whose rows are dense and whose dtype is that of the result. Below
// autograd; for code that computes a product in parts. UsageError for other sizes.
void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b);
// Whether the call is a product of two matrices whose rows can be computed apart, by matmul_into().
bool has_rows_apart(const OpCall& product);
// Batched matrix product of two 3-D tensors with equal batch: [b, m, k] x [b, k, n] -> [b, m, n].
Tensor bmm(const Tensor& a, const Tensor& b);
// x times the transpose of `weight`; the leading dims of x are tokens. Shapes: x [..., in], weight [out, in] -> [...,
// out]. The gradient of `weight` is f32 and sums over tokens in the order of numerics contract N3t.
Tensor linear(const Tensor& x, const Tensor& weight);

}  // namespace tutti
