// A sum of matrix products that is one contraction.
#pragma once

#include <optional>
#include <span>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct OpCall;

// As many as the letters of a sharding rule allow, with m and n.
inline constexpr size_t kMaxProducts = 12;

struct MatmulSumOptions {
  std::optional<DType> out_dtype;  // default: the common type of all operands. f32 leaves a partial sum unrounded (N4)
};

// The sum over i of a[i] times b[i], accumulated in f32 (f64 when an operand is f64) as one contraction over all inner
// sizes, which are cut and summed together (numerics contract, N3: codegen::InterleavedContraction), and rounded once.
// One pair has the bits of matmul(). It is the gradient of a value that several linear layers read (nn/multi_linear.h).
// Shapes: a[i] [m, k_i], b[i] [k_i, n] -> [m, n]; from 1 to 12 pairs. Dtypes: any floats but fp8. UsageError when the
// lists differ in length, inner sizes differ, or operands are no matrices of floats. Source: definition.
Tensor matmul_sum(std::span<const Tensor> a, std::span<const Tensor> b, const MatmulSumOptions& options = {});
// Writes it to `out` [m, n], whose rows are dense and whose dtype is that of the result. Below autograd; for code that
// computes it in parts of rows. UsageError for other sizes.
void matmul_sum_into(const Tensor& out, std::span<const Tensor> a, std::span<const Tensor> b);
// Whether it is a call of matmul_sum(), whose inputs are all a, then all b.
bool is_matmul_sum(const OpCall& call);

}  // namespace tutti
