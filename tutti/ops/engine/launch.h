// launch(): the one way to the kernels, for eager calls and for the steps of compiled functions.
#pragma once

#include <span>

#include "tutti/ops/engine/device_engine.h"
#include "tutti/runtime/trace/kernel_info.h"

namespace tutti {

// Runs a compiled kernel over all points of `plan` on the engine of `device`, in parallel when the work is large. data:
// the first elements of the operands; null: those that the nest names. Returns what the kernel reported in
// KernelCall::error.
[[nodiscard]] uint32_t launch(const LoopPlan& plan, const codegen::Kernel& kernel, const codegen::ParamValue* params,
                              char* const* data = nullptr, Device device = kCpu);
// A part of it, on the calling thread of the host.
[[nodiscard]] uint32_t launch_part(const LoopPlan& plan, const codegen::Kernel& kernel,
                                   const codegen::ParamValue* params, char* const* data, const NestPart& part,
                                   const MovedOperand* moved = nullptr);

// Runs the kernel of a call whose arguments have been checked, whose written inputs are marked and whose `outputs` are
// allocated: the one that the engine of its device has for the op, else its recipe. In front of and behind it stand
// what every call has, the check of effects and the event of the trace. compiled: what a compiled function knows of the
// call, for the event.
void launch_call(const OpCall& call, std::span<const Tensor> outputs, const TraceKernel* compiled = nullptr);
// The same around `run`, which stands for the kernel of the call.
void launch_call(const OpCall& call, const TraceKernel* compiled, FunctionRef<void()> run);

}  // namespace tutti
