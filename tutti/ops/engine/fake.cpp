#include "tutti/ops/engine/fake.h"

#include <mutex>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/core/number.h"
#include "tutti/runtime/size_class.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {

class FakeCounter {
 public:
  explicit FakeCounter(int64_t threads) : threads(threads) {}
  const int64_t threads;

  void add(int64_t bytes, MemoryCategory category) {
    const std::lock_guard lock(mutex_);
    MemoryStatistics& s = statistics_;
    s.current_bytes += bytes;
    s.current_by_category[static_cast<size_t>(category)] += bytes;
    s.allocations += bytes > 0;
    if (s.current_bytes <= s.peak_bytes) return;
    s.peak_bytes = s.current_bytes;
    s.at_peak_by_category = s.current_by_category;
  }
  MemoryStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  mutable std::mutex mutex_;  // the last handle on a tensor may go on any thread
  MemoryStatistics statistics_;
};

namespace {

thread_local std::shared_ptr<FakeCounter> current_counter;

class FakeMemory final : public StoragePlaceholder {
 public:
  explicit FakeMemory(int64_t nbytes)
      : StoragePlaceholder(StorageState::traced),
        counter_(current_counter),
        bytes_(block_bytes(nbytes)),
        category_(MemoryCategoryScope::current()) {
    counter_->add(bytes_, category_);
  }
  ~FakeMemory() override { counter_->add(-bytes_, category_); }
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;
  [[noreturn]] void refuse_data() const override {
    throw UsageError(
        "the elements of a fake tensor were asked for, and it has sizes only; compute it outside of a FakeScope");
  }

 private:
  const std::shared_ptr<FakeCounter> counter_;
  const int64_t bytes_;
  const MemoryCategory category_;
};

Tensor make_fake(const Extents& sizes, DType dtype) {
  const int64_t nbytes = checked_mul(numel_of(sizes), itemsize(dtype));
  return Tensor::over(StorageRef::adopt(Storage::without_memory(nbytes, kCpu, std::make_unique<FakeMemory>(nbytes))),
                      sizes, contiguous_strides(sizes), 0, dtype);
}

// Stands where kernels run.
class FakeStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    if (call.op.num_outputs == 0) {  // computes nothing, but hands a tensor on, such as a gradient
      run_eager(call, outputs);
      return;
    }
    if (call.op.view != nullptr) {
      outputs[0] = call.op.view(call);
    } else {
      OutputMetas metas;
      call.op.infer(call, metas);
      begin_writes(call);
      for (int k = 0; k < metas.count; ++k) {
        const int written = call.op.writes[k];
        outputs[static_cast<size_t>(k)] = written >= 0 ? call.inputs[static_cast<size_t>(written)]
                                                       : make_fake(concrete(metas.meta[k].sizes), metas.meta[k].dtype);
      }
    }
    if (call.op.room != nullptr) {
      const int64_t room = call.op.room(call, current_counter->threads);
      current_counter->add(room, MemoryCategoryScope::current());
      current_counter->add(-room, MemoryCategoryScope::current());
    }
    finish_rebinding(call, outputs);
  }
};

StageMask fake_bit() {
  static FakeStage stage;
  static const StageMask bit = register_stage("fake", StagePlace::kernels, &stage);
  return bit;
}

}  // namespace

FakeScope::FakeScope(int64_t threads)
    : counter_(std::make_shared<FakeCounter>(threads > 0 ? threads : ThreadPool::current().threads())),
      stages_(fake_bit(), 0) {
  TUTTI_CHECK(current_counter == nullptr,
              "FakeScope: this thread has one already; a second would count the same tensors");
  current_counter = counter_;
}

FakeScope::~FakeScope() { current_counter.reset(); }

Tensor FakeScope::empty(const Extents& sizes, DType dtype) const { return make_fake(sizes, dtype); }

MemoryStatistics FakeScope::statistics() const { return counter_->statistics(); }

}  // namespace tutti
