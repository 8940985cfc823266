// Fake tensors: sizes, dtypes and strides without elements, whose bytes are counted as if they had memory. A program
// that runs on them tells how much memory it would take, quickly and for models of any size.
#pragma once

#include <memory>

#include "tutti/ops/engine/dispatch.h"
#include "tutti/runtime/allocator.h"

namespace tutti {

class FakeCounter;

// While it lives, ops on this thread compute the sizes of their results and nothing else: new results are fake,
// whatever the inputs are, and what an op writes stays as it is. Ops without results, which hand tensors on, run.
// Autograd records as ever. Asking for elements of a fake tensor is a UsageError. One scope at a time on a thread; fake
// tensors may outlive it, but then ops on them are errors.
class FakeScope {
 public:
  // Kernels take what they would on `threads` threads (OpDef::room); 0: those of the rank.
  explicit FakeScope(int64_t threads = 0);
  ~FakeScope();
  FakeScope(const FakeScope&) = delete;
  FakeScope& operator=(const FakeScope&) = delete;

  // A fake tensor, dense and row-major, counted under the category of the moment (MemoryCategoryScope).
  Tensor empty(const Extents& sizes, DType dtype) const;

  // The memory of the fake tensors made in this scope, and the most it was together with the room of a kernel, in block
  // sizes of the allocator.
  MemoryStatistics statistics() const;

 private:
  const std::shared_ptr<FakeCounter> counter_;
  const StageScope stages_;
};

}  // namespace tutti
