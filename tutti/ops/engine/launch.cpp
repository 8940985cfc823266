#include "tutti/ops/engine/launch.h"

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/effect_check.h"
#include "tutti/ops/engine/kernel_trace.h"

namespace tutti {

uint32_t launch(const LoopPlan& plan, const codegen::Kernel& kernel, const codegen::ParamValue* params,
                char* const* data, Device device) {
  return device_engine(device, kernel.name.c_str()).launch(plan, kernel, params, data, current_stream(device));
}

uint32_t launch_part(const LoopPlan& plan, const codegen::Kernel& kernel, const codegen::ParamValue* params,
                     char* const* data, const NestPart& part, const MovedOperand* moved) {
  KernelRun run = plan.run;
  run.entry = kernel.entry;
  run.params = params;
  run.data = data;
  return run_nest_part(plan.nest, plan.outer_end, run, part, moved);
}

namespace {

// What every call has around its kernel. A template, because an eager call of a few elements notices a call more.
template <class Run>
void launch_around(const OpCall& call, const TraceKernel* compiled, const Run& run) {
  const EffectCheck effects(call);
  {
    const KernelTrace trace(call, compiled);
    run();
  }
  effects.finish();
}

}  // namespace

void launch_call(const OpCall& call, const TraceKernel* compiled, FunctionRef<void()> run) {
  launch_around(call, compiled, run);
}

void launch_call(const OpCall& call, std::span<const Tensor> outputs, const TraceKernel* compiled) {
  launch_around(call, compiled, [&] {
    DeviceEngine& engine = engine_of(call, outputs);
    if (const LibraryKernel kernel = engine.library_kernel(call.op))
      engine.launch(kernel, call, outputs, current_stream(device_of(call, outputs)));
    else run_recipe(call, outputs);
  });
}

}  // namespace tutti
