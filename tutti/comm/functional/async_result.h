// Results that a collective still writes, and how the ops that read them wait.
//
// The result of a functional collective carries a stage bit. The stage behind it waits for the works of the storage
// before an op reads it; views pass without waiting and carry the bit on. Host reads through item(), to_string and
// copies wait, too (tutti/tensor/host_read.h).
#pragma once

#include "tutti/comm/functional/work_registry.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::comm::functional {

inline constexpr StageBit kAsyncStage = static_cast<StageBit>(2);

// For kernels. ---------------------------------------------------------------------------------------------------------

// A dense copy of `x`, which the caller may overwrite as soon as the call returns.
Tensor snapshot(const Tensor& x);
// The memory of a dense `output` under a storage of its own: when the collective ends it counts a write, which must not
// look like a change of the result to autograd. Holds the memory.
Tensor target_of(const Tensor& output);
// `result` is there when `work` has ended.
void attach(const Tensor& result, const Work& work);
// `result` is there when `other` is.
void attach_to(const Tensor& result, const Tensor& other);

}  // namespace tutti::comm::functional
