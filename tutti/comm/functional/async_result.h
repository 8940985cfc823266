// Results of asynchronous collectives, and how the ops that read them wait.
//
// The result of a functional collective carries a stage bit. The stage behind that bit waits until the storage is
// written before an op reads it; views do not wait and inherit the bit. The storage is pending meanwhile, so that reads
// of the host through item(), to_string() and copies wait as well (tutti/tensor/host_read.h).
#pragma once

#include <functional>
#include <vector>

#include "tutti/comm/functional/work_registry.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::comm::functional {

// For kernels.
// ---------------------------------------------------------------------------------------------------------

// A dense copy of `x`; the caller may overwrite `x` as soon as the call returns.
Tensor snapshot(const Tensor& x);
// The memory of a dense `output` under a separate storage, so that the write counted when the collective ends does not
// look to autograd like a modification of the result. Keeps the memory alive.
Tensor target_of(const Tensor& output);
// Marks `result` as complete once `work` has ended. Nobody has to wait for a result without elements, in which there is
// nothing to read.
void attach(const Tensor& result, const Work& work);
void attach_token(const Tensor& token, const Work& work);  // of a message: without elements, and there to be waited for
// Marks `result` as complete once `other` is.
void attach_to(const Tensor& result, const Tensor& other);

// For code that has something left to do with what arrives. ----------------------------------------------------------

// Whether the elements of `t` are still on their way.
bool is_pending(const Tensor& t);
// A dense tensor that behaves like the result of a functional collective: when its elements are first asked for, all of
// `awaited` are waited for, and then `write` fills it. Without a read it is never filled, and what failed comes out of
// each read. `write` runs on the reading thread, below autograd, sharding and traces, and must not start collectives.
Tensor filled_when_read(const Extents& sizes, DType dtype, std::vector<Tensor> awaited,
                        std::function<void(const Tensor& target)> write);

}  // namespace tutti::comm::functional
