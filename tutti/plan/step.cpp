#include "tutti/plan/step.h"

#include "tutti/plan/control_step.h"

namespace tutti::graph {

std::string to_string(std::span<const Step> steps) {
  std::string text;
  const auto add = [&](const KernelStep& kernel, const char* prefix) {
    text += fmt::format("{}kernel {} over {}, {} operands, {:.0f} bytes\n", prefix, kernel.ops, kernel.plan.nest.sizes,
                        kernel.operands.size(), kernel.bytes);
  };
  for (const Step& step : steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step)) {
      add(*kernel, "");
    } else if (const auto* batch = std::get_if<BatchStep>(&step)) {
      text += fmt::format("launch of {} kernels in {} pieces\n", batch->kernels.size(), batch->pieces);
      for (const KernelStep& each : batch->kernels) add(each, "  ");
    } else {
      const CallStep& call = std::get<CallStep>(step);
      text += fmt::format("{} {}", call.check_only ? "check" : "call", call.op->name);
      for (const Value& v : call.outputs) text += " " + to_string(v);
      if (!call.attrs.empty()) text += " " + call.attrs.to_string();
      if (call.prologue) {
        const KernelStep& kernel = call.prologue->kernel;
        text += fmt::format(", its first operand from {}: {} operands, {:.0f} bytes", kernel.ops,
                            kernel.operands.size(), kernel.bytes);
      }
      if (call.epilogue) {
        const KernelStep& kernel = call.epilogue->kernel;
        text +=
            fmt::format(", on its blocks {}: {} operands, {:.0f} bytes, output {}", kernel.ops, kernel.operands.size(),
                        kernel.bytes, call.epilogue->keeps_operand ? "kept" : "nowhere else");
      }
      text += "\n";
      if (call.control) text += call.control->to_string();
    }
  }
  return text;
}

}  // namespace tutti::graph
