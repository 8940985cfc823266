// DeviceEngine: how the ops of a kind of device run. There is one for each kind, found by the device of a call's
// inputs; the memory and the streams of the device are its DeviceBackend's.
//
// Engines may be called from any thread. A launch enqueues its work on a stream of the device and returns; what goes
// wrong there is thrown when the stream is waited for. Ops launch on the current_stream() of their thread.
#pragma once

#include <span>

#include "tutti/ops/engine/loop_plan.h"
#include "tutti/ops/engine/op_def.h"
#include "tutti/runtime/stream.h"

namespace tutti {

// A kernel that was written for an op. The outputs are allocated.
using LibraryKernel = void (*)(const OpCall&, std::span<const Tensor> outputs);

class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;
  // The kernel that this device has for the op; null: its calls run the op's recipe.
  virtual LibraryKernel library_kernel(const OpDef& op) const = 0;
  // The compiled kernel of a recipe.
  virtual const codegen::Kernel& kernel_for(const codegen::KernelSpec& spec) = 0;
  // Whether compiled functions may hold calls of this device.
  virtual bool runs_compiled_functions() const = 0;
  // OpDef::check of a call, which reads its operands: they are waited for.
  virtual void check(const OpCall& call) = 0;
  // Enqueues a library kernel on `stream`, which is one of the device of `call`.
  virtual void launch(LibraryKernel kernel, const OpCall& call, std::span<const Tensor> outputs, Stream& stream) = 0;
  // Enqueues a compiled kernel; see launch.h. Returns what it reported, as far as that is known when the call returns.
  [[nodiscard]] virtual uint32_t launch(const LoopPlan& plan, const codegen::Kernel& kernel,
                                        const codegen::ParamValue* params, char* const* data, Stream& stream) = 0;
};

// The engine of the device's kind. UsageError, beginning with `what`, when there is none.
DeviceEngine& device_engine(Device device, const char* what);
// Registers the engine of a kind other than the cpu; nullptr removes it. No call may be under way on the kind.
void register_device_engine(DeviceKind kind, DeviceEngine* engine);

// Where a call runs: on the device of its first input, else of its first output, else on the cpu.
inline Device device_of(const OpCall& call, std::span<const Tensor> outputs) {
  if (!call.inputs.empty()) return call.inputs[0].device();
  return outputs.empty() || !outputs[0].defined() ? kCpu : outputs[0].device();
}
inline DeviceEngine& engine_of(const OpCall& call, std::span<const Tensor> outputs) {
  return device_engine(device_of(call, outputs), call.op.name);
}
// UsageError, naming both tensors' devices, unless all inputs are on one device.
void check_devices(const OpCall& call);

}  // namespace tutti
