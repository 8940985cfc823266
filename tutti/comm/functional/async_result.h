// Results of asynchronous collectives, and how the ops that read them wait.
//
// The result of a functional collective carries a stage bit. The stage behind that bit waits for the collectives that write the
// storage before an op reads it; views do not wait and inherit the bit. The storage is pending meanwhile, so that reads of the host
// through item(), to_string() and copies wait as well (tutti/tensor/host_read.h).
#pragma once

#include "tutti/comm/functional/work_registry.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::comm::functional {

// For kernels. ---------------------------------------------------------------------------------------------------------

// A dense copy of `x`; the caller may overwrite `x` as soon as the call returns.
Tensor snapshot(const Tensor& x);
// The memory of a dense `output` under a separate storage, so that the write counted when the collective ends does not look to
// autograd like a modification of the result. Keeps the memory alive.
Tensor target_of(const Tensor& output);
// Marks `result` as complete once `work` has ended.
void attach(const Tensor& result, const Work& work);
// Marks `result` as complete once `other` is.
void attach_to(const Tensor& result, const Tensor& other);

}  // namespace tutti::comm::functional
