// A matrix product whose sum over ranks is scattered over the ranks.
#pragma once

#include <span>

#include "tutti/core/reduce_op.h"
#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Shapes: a [W x m, k], b [k, n] on each rank -> [m, n]: rows [rank x m, (rank + 1) x m) of the sum over ranks of a b.
// Dtypes: floats; partial products stay f32 (f64 when an operand is), are added in the halving tree over ranks and
// rounded once (numerics contract, N4): the bits of reduce_scatter(matmul(a, b, f32)) cast to the common dtype. op: sum
// or avg. k may differ between ranks. Not recorded by autograd. UsageError on all ranks when their calls differ, or
// when any of them has operands that are not 2-D, unequal inner sizes, a number of rows that W does not divide, or
// another op.
Tensor matmul_reduce_scatter(const Tensor& a, const Tensor& b, const SymmGroup& group,
                             const ReduceOp& op = ReduceKind::sum);

// The same into `out`, a dense [m, n] of the dtype of the partial products: not rounded to the common dtype.
void matmul_reduce_scatter_into(const Tensor& out, const Tensor& a, const Tensor& b, const SymmGroup& group,
                                const ReduceOp& op = ReduceKind::sum);
// The same of a sum of products that is one contraction, as in matmul_sum().
void matmul_reduce_scatter_into(const Tensor& out, std::span<const Tensor> a, std::span<const Tensor> b,
                                const SymmGroup& group, const ReduceOp& op = ReduceKind::sum);

}  // namespace tutti::comm::symm
