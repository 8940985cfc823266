#include "tutti/comm/functional/async_result.h"

#include "tutti/ops/engine/index_loops.h"
#include "tutti/tensor/host_read.h"

namespace tutti::comm::functional {
namespace {

constexpr StageMask kMask = mask_of(kAsyncStage);

class AsyncStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    if (!call.op.view) {
      for (const Tensor& t : call.inputs) wait_works(t);
    }
    {
      const StageScope scope(0, kMask);
      apply(call.op, call.inputs, call.attrs, outputs);
    }
    if (!call.op.view) return;
    // A view moves no data. wait_tensor is a view whose storage has no works left.
    if (has_works(outputs[0]) && !(outputs[0].stages() & kMask)) outputs[0].impl()->stages |= kMask;
  }
};

const bool installed = [] {
  static AsyncStage stage;
  install_stage(kAsyncStage, &stage);
  install_host_read_hook([](const Tensor& t) {
    if (t.stages() & kMask) wait_works(t);
  });
  return true;
}();

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
  result.impl()->stages |= kMask;
}

void attach_to(const Tensor& result, const Tensor& other) {
  share_works(other, result);
  if (has_works(result)) result.impl()->stages |= kMask;
}

}  // namespace tutti::comm::functional
