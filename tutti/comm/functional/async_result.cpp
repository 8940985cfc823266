#include "tutti/comm/functional/async_result.h"

#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

StageMask async_stage();

class AsyncStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    if (!call.op.view) {
      for (const Tensor& t : call.inputs) wait_works(t);
    }
    {
      const StageScope scope(0, async_stage());
      apply(call.op, call.inputs, call.attrs, outputs);
    }
    if (!call.op.view) return;
    // A view moves no data. wait_tensor is a view whose storage has no works left.
    if (has_works(outputs[0])) outputs[0].impl()->stages |= async_stage();
  }
};

StageMask async_stage() {
  static AsyncStage stage;
  static const StageMask mask = register_stage("functional collectives", StagePlace::kernels, &stage);
  return mask;
}
// Before other stages of its place, which then see inputs that are complete.
[[maybe_unused]] const StageMask registered_first = async_stage();

}  // namespace

Tensor snapshot(const Tensor& x) {
  const Tensor copy = Tensor::empty(x.extents(), x.dtype(), x.device());
  facets::raw_copy(copy, x);
  return copy;
}

Tensor target_of(const Tensor& output) {
  TUTTI_ASSERT(output.is_contiguous(), "the result {} of a collective is not dense", describe(output));
  return Tensor::from_memory(output.raw_data(), output.extents(), output.dtype(), [held = output.storage()] {}, output.device());
}

void attach(const Tensor& result, const Work& work) {
  if (work.status() == WorkStatus::completed) return;
  register_work(result, work);
  result.impl()->stages |= async_stage();
}

void attach_to(const Tensor& result, const Tensor& other) {
  share_works(other, result);
  if (has_works(result)) result.impl()->stages |= async_stage();
}

}  // namespace tutti::comm::functional
