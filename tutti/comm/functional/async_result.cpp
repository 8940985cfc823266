#include "tutti/comm/functional/async_result.h"

#include <mutex>

#include "tutti/ops/engine/index_loops.h"
#include "tutti/tensor/host_read.h"

namespace tutti::comm::functional {
namespace {

StageMask async_stage();

class AsyncStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    if (!call.op.view) {
      for (const Tensor& t : call.inputs) {
        if (t.defined()) before_host_read(t);
      }
    }
    {
      const StageScope scope(0, async_stage());
      apply(call.op, call.inputs, call.attrs, outputs);
    }
    if (!call.op.view) return;
    // A view moves no data. wait_tensor is a view of a storage that is no longer pending.
    if (is_pending(outputs[0])) outputs[0].impl()->stages |= async_stage();
  }
};

StageMask async_stage() {
  static AsyncStage stage;
  static const StageMask mask = register_stage("functional collectives", StagePlace::kernels, &stage);
  return mask;
}
// Before other stages of its place, which then see inputs that are complete.
[[maybe_unused]] const StageMask registered_first = async_stage();

// What is left to do for one storage, which owns this.
class Filling final : public PendingWriter {
 public:
  Filling(Tensor memory, std::vector<Tensor> awaited, std::function<void(const Tensor&)> write)
      : memory_(std::move(memory)), awaited_(std::move(awaited)), write_(std::move(write)) {}

  void wait(Storage& storage) override {
    std::vector<Tensor> awaited;
    {
      const std::lock_guard lock(mutex_);
      awaited = awaited_;
    }
    // Without the lock: whoever waits also drives other calls, whose callbacks may read this storage.
    for (const Tensor& t : awaited) before_host_read(t);
    const std::lock_guard lock(mutex_);
    if (write_) {
      const StageScope below(0, static_cast<StageMask>(mask_of(StagePlace::autograd) | mask_of(StagePlace::sharding) |
                                                       mask_of(StagePlace::capture)));
      write_(memory_);
      write_ = nullptr;
      awaited_.clear();
    }
    storage.end_pending(this);
  }

 private:
  std::mutex mutex_;
  const Tensor memory_;
  std::vector<Tensor> awaited_;
  std::function<void(const Tensor&)> write_;  // empty: done
};

}  // namespace

Tensor snapshot(const Tensor& x) {
  const Tensor copy = Tensor::empty(x.extents(), x.dtype(), x.device());
  facets::raw_copy(copy, x);
  return copy;
}

Tensor target_of(const Tensor& output) {
  TUTTI_ASSERT(output.is_contiguous(), "the result {} of a collective is not dense", describe(output));
  return Tensor::from_memory(
      output.raw_data(), output.extents(), output.dtype(), [held = output.storage()] {}, output.device());
}

static void attach_as(const Tensor& result, const Work& work, bool wants_wait) {
  if (work.status() == WorkStatus::completed) return;
  register_work(result, work, wants_wait);
  result.impl()->stages |= async_stage();
}

void attach(const Tensor& result, const Work& work) { attach_as(result, work, result.storage()->nbytes() > 0); }
void attach_token(const Tensor& token, const Work& work) { attach_as(token, work, true); }

void attach_to(const Tensor& result, const Tensor& other) {
  share_works(other, result);
  if (has_works(result)) result.impl()->stages |= async_stage();
}

bool is_pending(const Tensor& t) { return t.storage()->state() == StorageState::pending; }

Tensor filled_when_read(const Extents& sizes, DType dtype, std::vector<Tensor> awaited,
                        std::function<void(const Tensor& target)> write) {
  const Tensor memory = Tensor::empty(sizes, dtype);
  const auto filling = std::make_shared<Filling>(memory, std::move(awaited), std::move(write));
  Tensor result = Tensor::from_memory(memory.raw_data(), sizes, dtype, [filling] {});
  result.storage()->set_pending(filling.get());
  result.impl()->stages |= async_stage();
  return result;
}

}  // namespace tutti::comm::functional
