// Runs recipes eagerly: recipe -> kernel specification -> compiled kernel -> calls over the tensor's dims.
#pragma once

#include <span>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// `outputs` are allocated. Throws IntegerDivideByZero or UsageError (index out of range) that the kernel reported.
void run_recipe(const OpCall& call, std::span<const Tensor> outputs);

// Work below this many elements runs on the calling thread.
inline constexpr int64_t kParallelGrain = 16384;

}  // namespace tutti
