// The arithmetic of reductions over W ranks, which is the same on every transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/core/reduce_op.h"

namespace tutti::comm {

// out[i] = the reduction over r of inputs[r][i] for i in [0, count), in the halving tree over ranks: the
// first ceil(W/2) ranks and the last floor(W/2), each likewise. Values are widened to the compute dtype of `dtype`,
// combined there and rounded once to `dtype`. All memory holds elements of `dtype`; `out` may be the memory of one of
// the inputs. factors: one per rank for premul_sum, otherwise empty. The average of equal floats is that float: the
// quotient of their sum often rounds to another one, or the sum is infinite. Any thread.
void combine(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs, std::span<const double> factors,
             int64_t count, std::byte* out);

// The same in two steps, for ranks that lie on several hosts. The values of the ranks of one node of the tree, to their
// partial result of part_bytes() an element; and the partial results of the nodes that make up the tree over `ranks`
// ranks, to the result.
int64_t part_bytes(ReduceKind kind, DType dtype);
void combine_part(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs,
                  std::span<const double> factors, int64_t count, std::byte* out);
void combine_parts(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts, int ranks, int64_t count,
                   std::byte* out);

}  // namespace tutti::comm
