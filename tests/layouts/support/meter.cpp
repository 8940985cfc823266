#include "tests/layouts/support/meter.h"

#include <string_view>

namespace tutti::layouts {
namespace {

constexpr StageBit kMeterBit = static_cast<StageBit>(0);
thread_local FlopMeter* current_meter = nullptr;

class MeterStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    const std::string_view name = call.op.name;
    if (name == "matmul" || name == "sdpa" || name == "sdpa_partial" || name == "sdpa_backward") current_meter->add(cost_of(call).flops);
    const StageScope once(0, mask_of(kMeterBit));
    apply(call.op, call.inputs, call.attrs, outputs);
  }
};

void install() {
  static const bool installed = [] {
    static MeterStage stage;
    install_stage(kMeterBit, &stage);
    return true;
  }();
  (void)installed;
}

}  // namespace

FlopMeter::FlopMeter() : previous_(current_meter), scope_((install(), mask_of(kMeterBit)), 0) { current_meter = this; }
FlopMeter::~FlopMeter() { current_meter = previous_; }
FlopMeter* FlopMeter::current() { return current_meter; }

}  // namespace tutti::layouts
