#include "tests/layouts/support/meter.h"

#include <string_view>

namespace tutti::layouts {
namespace {

StageMask meter_stage();
thread_local FlopMeter* current_meter = nullptr;

class MeterStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    const std::string_view name = call.op.name;
    if (name == "matmul" || name == "sdpa" || name == "sdpa_partial" || name == "sdpa_backward") current_meter->add(cost_of(call).flops);
    const StageScope once(0, meter_stage());
    apply(call.op, call.inputs, call.attrs, outputs);
  }
};

StageMask meter_stage() {
  static MeterStage stage;
  static const StageMask mask = register_stage("flop meter", StagePlace::kernels, &stage);
  return mask;
}

}  // namespace

FlopMeter::FlopMeter() : previous_(current_meter), scope_(meter_stage(), 0) { current_meter = this; }
FlopMeter::~FlopMeter() { current_meter = previous_; }
FlopMeter* FlopMeter::current() { return current_meter; }

}  // namespace tutti::layouts
