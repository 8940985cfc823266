// Storage: the memory under one or more tensors, reference counted.
//
// Reference counts are atomic, access to the bytes is not synchronized: threads may read a storage concurrently, but a
// writer needs exclusive access.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "tutti/core/device.h"
#include "tutti/core/shape.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/free_list.h"

namespace tutti {

class Tensor;

// A yes/no question about sizes and strides of a tensor; `about` holds further arguments.
using TensorQuestion = bool (*)(const Tensor& t, const Shape& about);

// Where the bytes of a storage are.
enum class StorageState : uint8_t {
  present,   // in memory
  pending,   // in memory as soon as a writer, such as a collective in progress, has finished
  traced,    // nowhere: the tensor stands for one that exists when a trace's graph runs
  released,  // nowhere: the memory was given back and may be restored
  sharded,   // spread over several ranks, this one holding a part; the room that placed them can gather them
};
const char* name_of(StorageState state);

class Storage;

// Writes the bytes of storages that are pending, and lives as long as they do.
class PendingWriter {
 public:
  // Blocks until the bytes of `storage` are written and makes it present, or throws why they never will be. Called from
  // any thread.
  virtual void wait(Storage& storage) = 0;

 protected:
  ~PendingWriter() = default;
};

// Takes the place of memory that does not exist: tensors of a trace have sizes but no elements.
class StoragePlaceholder {
 public:
  // `state` is traced, released or sharded.
  explicit StoragePlaceholder(StorageState state) : state_(state) {}
  virtual ~StoragePlaceholder() = default;
  StorageState state() const { return state_; }
  // Called when the bytes of such a tensor are requested. Throws.
  [[noreturn]] virtual void refuse_data() const = 0;
  // Answers a question about a tensor with symbolic sizes, for the sizes of the traced call.
  virtual bool decide(const Tensor& t, TensorQuestion question, const Shape& about) const;

 private:
  const StorageState state_;
};

class Storage : public FreeListed<Storage> {
 public:
  // New memory from the current rank's allocator (host) or the device's backend.
  static Storage* allocate(int64_t nbytes, Device device);
  // Memory with another owner; `release` runs when the last tensor on it is gone.
  static Storage* wrap(void* data, int64_t nbytes, Device device, std::function<void()> release);

  // A storage of `nbytes` without memory.
  static Storage* without_memory(int64_t nbytes, Device device, std::unique_ptr<StoragePlaceholder> placeholder);

  // The bytes, which a pending storage has as well; wait() before they are read. Throws an error from the placeholder
  // when there is no memory.
  void* data() const {
    if (placeholder_) [[unlikely]]
      placeholder_->refuse_data();
    return data_;
  }
  // Returns the memory to the allocator. Tensors on the storage stay, and reading them is a UsageError until
  // restore_memory(). UsageError for memory with another owner. The caller must exclude concurrent use.
  void release_memory();
  // Allocates the memory again, uninitialized. Both functions do nothing when the storage already is in that state.
  void restore_memory();
  bool has_memory() const { return !placeholder_; }
  StorageState state() const;
  // From now on, host reads of the bytes wait for `writer` first; null: the bytes are written. May be called from any
  // thread.
  void set_pending(PendingWriter* writer) { writer_.store(writer, std::memory_order_release); }
  // `writer` has written the bytes. Where another one was set meanwhile, they are still to be written by that.
  void end_pending(PendingWriter* writer) {
    writer_.compare_exchange_strong(writer, nullptr, std::memory_order_acq_rel);
  }
  // Waits until the bytes are written. Throws the writer's error if they cannot be.
  void wait() {
    if (PendingWriter* const writer = writer_.load(std::memory_order_acquire)) [[unlikely]]
      writer->wait(*this);
  }
  StoragePlaceholder* placeholder() const { return placeholder_.get(); }
  int64_t nbytes() const { return nbytes_; }
  Device device() const { return device_; }
  bool is_read_only() const { return read_only_; }
  void set_read_only() { read_only_ = true; }

  // Incremented by each in-place write; autograd compares it with the version it saved.
  uint32_t version() const { return version_at_->load(std::memory_order_relaxed); }
  void bump_version() { version_at_->fetch_add(1, std::memory_order_relaxed); }
  // From now on the version is that of `other`, whose elements this storage stands for, and which it keeps alive.
  void share_version(Storage& other);

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  int64_t use_count() const { return references_.load(std::memory_order_relaxed); }

 private:
  Storage() = default;
  ~Storage();
  void* data_ = nullptr;
  int64_t nbytes_ = 0;
  Allocator* allocator_ = nullptr;  // null for wrapped and device memory
  std::atomic<int32_t> references_{1};
  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t>* version_at_ = &version_;
  Storage* version_of_ = nullptr;  // the storage that version_at_ belongs to; null: this one
  std::atomic<PendingWriter*> writer_{nullptr};
  Device device_;
  MemoryCategory category_ = MemoryCategory::activations;
  bool read_only_ = false;
  std::function<void()> release_;
  std::unique_ptr<StoragePlaceholder> placeholder_;
};

// An intrusive reference-counted pointer to a T with retain() and release().
template <class T>
class Counted {
 public:
  Counted() = default;
  static Counted adopt(T* pointer) {
    Counted c;
    c.pointer_ = pointer;
    return c;
  }
  Counted(const Counted& other) : pointer_(other.pointer_) {
    if (pointer_) pointer_->retain();
  }
  Counted(Counted&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Counted& operator=(Counted other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Counted() {
    if (pointer_) pointer_->release();
  }
  T* get() const { return pointer_; }
  T* operator->() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  T* pointer_ = nullptr;
};

using StorageRef = Counted<Storage>;

}  // namespace tutti
