// Products with a few rows, which take as long as reading B: B is read once, in place, without copying.
// Private to the GEMM.
//
// Neighbouring columns (the weight of x W): rows of B are added to sums that stay in the first-level cache, a few k at
// a time. Neighbouring k (the weight of x W^T): the lanes of a register are leaves of the tree, whose chains are
// independent, and memory is asked for in its order.
#pragma once

#include "tutti/codegen/gemm/cut.h"

namespace tutti::codegen {

// Which of the two serves the problem, if it is worth it; both have the bits of every other way.
enum class GemmStream : uint8_t { none, columns, leaves };
GemmStream stream_of(const GemmProblem& p, const ContractionTree& tree);

// Computes all elements of the batch. stream_of() must not be `none`.
void stream_gemm(const GemmProblem& p, const ContractionTree& tree, ThreadPool& pool, const GemmConsumer* consumer);

}  // namespace tutti::codegen
