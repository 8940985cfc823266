#include "tutti/ops/engine/device_engine.h"

#include <array>
#include <atomic>

namespace tutti {
namespace {

// The host: kernels run while they are launched.
class CpuEngine final : public DeviceEngine {
 public:
  LibraryKernel library_kernel(const OpDef& op) const override { return op.kernel; }
  const codegen::Kernel& kernel_for(const codegen::KernelSpec& spec) override { return codegen::kernel_for(spec); }
  bool runs_compiled_functions() const override { return true; }
  void check(const OpCall& call) override { call.op.check(call); }
  void launch(LibraryKernel kernel, const OpCall& call, std::span<const Tensor> outputs, Stream&) override {
    kernel(call, outputs);
  }
  uint32_t launch(const LoopPlan& plan, const codegen::Kernel& kernel, const codegen::ParamValue* params,
                  char* const* data, Stream&) override {
    KernelRun run = plan.run;
    run.entry = kernel.entry;
    run.params = params;
    run.data = data;
    return run_nest(plan.nest, plan.outer_end, run);
  }
};

constinit CpuEngine cpu_engine;
// By kind. The cpu's place holds its engine from the start, also in the constructors of other files' statics.
constinit std::array<std::atomic<DeviceEngine*>, kNumDeviceKinds> engines{&cpu_engine};

}  // namespace

DeviceEngine& device_engine(Device device, const char* what) {
  DeviceEngine* engine = engines[static_cast<size_t>(device.kind)].load(std::memory_order_acquire);
  TUTTI_CHECK(engine != nullptr,
              "{}: no kernels are registered for {}; copy the tensors to the cpu, or register a DeviceEngine", what,
              to_string(device));
  return *engine;
}

void register_device_engine(DeviceKind kind, DeviceEngine* engine) {
  TUTTI_CHECK(kind != DeviceKind::cpu, "the cpu is built in; register an engine for another kind of device");
  engines[static_cast<size_t>(kind)].store(engine, std::memory_order_release);
}

void check_devices(const OpCall& call) {
  for (const Tensor& t : call.inputs) {
    TUTTI_CHECK(t.device() == call.inputs[0].device(),
                "{}: the tensor {} is not on {}, the device of input 0, where this op runs; copy it first",
                call.op.name, describe(t), to_string(call.inputs[0].device()));
  }
}

}  // namespace tutti
