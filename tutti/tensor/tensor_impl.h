// TensorImpl, the state of a tensor, and TensorHandle, the counted pointer inside every Tensor object.
//
// A Tensor object is a location in the program: a variable, a member, an element of a vector. Code that has read a
// tensor through such locations may ask to be notified when one of them is lost, see handle_watch.h. For tensors that
// are not watched this costs one test per copy and per destruction of a handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "tutti/core/device.h"
#include "tutti/core/dtype.h"
#include "tutti/core/error.h"
#include "tutti/core/shape.h"
#include "tutti/runtime/free_list.h"
#include "tutti/tensor/extensions.h"
#include "tutti/tensor/storage.h"

namespace tutti {

class WatchedHandles;

// Bits of the dispatch stages a tensor takes part in (see tutti/ops/dispatch.h).
using StageMask = uint16_t;

struct TensorImpl : FreeListed<TensorImpl> {
  std::atomic<int32_t> references{1};
  StageMask stages = 0;
  DType dtype = DType::f32;
  int32_t traced = -1;  // the tensor's number in a trace with symbolic sizes; -1: none
  Device device;
  std::atomic<WatchedHandles*> handles{nullptr};  // the watched handles; null: none were ever watched
  std::atomic<uint64_t> handle_bits{0};  // the union of their bit_of(); a handle whose bit is missing is not watched
  Shape sizes;
  Extents
      extents;  // sizes as integers; while some are symbolic, this and the following fields describe the traced call
  Extents strides;     // in elements
  int64_t offset = 0;  // in elements
  int64_t numel = 0;
  bool contiguous = true;
  StorageRef storage;
  TensorExtensions extensions;

  ~TensorImpl();
  void retain() { references.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  static uint64_t bit_of(const void* handle) { return uint64_t{1} << (reinterpret_cast<uintptr_t>(handle) >> 3 & 63); }
  bool may_watch(const void* handle) const {
    return (handle_bits.load(std::memory_order_relaxed) & bit_of(handle)) != 0;
  }
  // A handle was copied, was moved to another place, or no longer refers to this tensor.
  void handle_copied(const void* from);
  void handle_moved(const void* from, const void* to);
  void handle_lost(const void* handle);
};

// A tensor without a value was used where one is needed.
class UndefinedTensorError : public UsageError {
 public:
  using UsageError::UsageError;
};
[[noreturn, gnu::cold]] void throw_undefined_tensor();

class TensorHandle {
 public:
  TensorHandle() = default;
  // Takes over the reference that a new TensorImpl has.
  explicit TensorHandle(TensorImpl* impl) : impl_(impl) {}
  TensorHandle(const TensorHandle& other) : impl_(other.impl_) {
    if (impl_ == nullptr) return;
    impl_->retain();
    if (impl_->handles.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      impl_->handle_copied(&other);
  }
  TensorHandle(TensorHandle&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) { moved_from(other); }
  TensorHandle& operator=(const TensorHandle& other) noexcept { return *this = TensorHandle(other); }
  TensorHandle& operator=(TensorHandle&& other) noexcept {
    if (this == &other) return *this;
    TensorImpl* const before = std::exchange(impl_, std::exchange(other.impl_, nullptr));
    moved_from(other);
    if (before == nullptr) return *this;
    if (before != impl_ && before->may_watch(this)) [[unlikely]]
      before->handle_lost(this);
    before->release();
    return *this;
  }
  ~TensorHandle() {
    if (impl_ == nullptr) return;
    if (impl_->may_watch(this)) [[unlikely]]
      impl_->handle_lost(this);
    impl_->release();
  }

  TensorImpl* get() const { return impl_; }
  // UndefinedTensorError when there is none.
  TensorImpl* operator->() const {
    if (impl_ == nullptr) [[unlikely]]
      throw_undefined_tensor();
    return impl_;
  }
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  void moved_from(const TensorHandle& other) const {
    if (impl_ != nullptr && impl_->may_watch(&other)) [[unlikely]]
      impl_->handle_moved(&other, this);
  }
  TensorImpl* impl_ = nullptr;
};

}  // namespace tutti
