// Runs recipes eagerly: recipe -> kernel specification -> compiled kernel -> calls over the tensor's dims.
#pragma once

#include <span>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// `outputs` are allocated. Throws IntegerDivideByZero or UsageError (index out of range) that the kernel reported.
void run_recipe(const OpCall& call, std::span<const Tensor> outputs);

// The dtype in which a recipe computes where the tensor holds `dtype`: the integer of its width when the recipe moves
// bits.
DType recipe_dtype(const Recipe& recipe, DType dtype);

// Throws what a kernel of `call` reported in KernelCall::error.
[[noreturn]] void throw_reported(uint32_t error, const OpCall& call);

// A bit of Recipe::per_row beyond those of outputs: outputs read more than reductions and params (an argument, the
// position in the row), so rows are not taken side by side as columns, whatever their strides.
inline constexpr uint32_t kRowsOnly = 1u << 31;

// Work below this many elements runs on the calling thread.
inline constexpr int64_t kParallelGrain = 16384;

}  // namespace tutti
