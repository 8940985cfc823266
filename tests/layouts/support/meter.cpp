#include "tests/layouts/support/meter.h"

#include <algorithm>
#include <string_view>

#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"

namespace tutti::layouts {
namespace {

namespace functional = comm::functional;

StageMask meter_stage();
thread_local Meter* current_meter = nullptr;

double flops_of(const OpCall& call) {
  const std::string_view name = call.op.name;
  return name == "matmul" || name == "sdpa" || name == "sdpa_partial" || name == "sdpa_backward" ? cost_of(call).flops
                                                                                                 : 0;
}

// The cost facet, but what is sent row by row is counted as the splits say, and a received message as what it is:
// nothing sent.
double wire_bytes_of(const OpCall& call) {
  if (std::ranges::find(functional::ops(), &call.op) == functional::ops().end() || &call.op == &functional::kIrecv)
    return 0;
  if (&call.op != &functional::kAllToAllVSingle) return cost_of(call).bytes;
  const Tensor& x = call[0];
  const Tensor& splits = call[2];
  if (x.numel() == 0) return 0;
  const int64_t rows = x.extent(0) - splits.data<int64_t>()[functional::rank_of(call)];
  return static_cast<double>(rows * (x.nbytes() / x.extent(0)));
}

class MeterStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    current_meter->add_flops(flops_of(call));
    current_meter->add_wire_bytes(wire_bytes_of(call));
    const StageScope once(0, meter_stage());
    apply(call.op, call.inputs, call.attrs, outputs);
  }
};

StageMask meter_stage() {
  static MeterStage stage;
  static const StageMask mask = register_stage("meter", StagePlace::kernels, &stage);
  return mask;
}

}  // namespace

Meter::Meter() : previous_(current_meter), scope_(meter_stage(), 0) { current_meter = this; }
Meter::~Meter() { current_meter = previous_; }
Meter* Meter::current() { return current_meter; }

}  // namespace tutti::layouts
