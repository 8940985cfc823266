#include "tutti/tensor/storage.h"

#include "tutti/runtime/device_backend.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {

const char* name_of(StorageState state) {
  static constexpr const char* kNames[] = {"present", "pending", "traced", "released", "sharded"};
  return kNames[static_cast<size_t>(state)];
}

bool StoragePlaceholder::decide(const Tensor&, TensorQuestion, const Shape&) const {
  throw InternalError("a tensor whose sizes are integers was asked as if they were symbolic");
}

Storage* Storage::allocate(int64_t nbytes, Device device) {
  auto* storage = new Storage;
  StorageRef guard = StorageRef::adopt(storage);
  storage->device_ = device;
  if (device.kind == DeviceKind::cpu) {
    storage->allocator_ = &RankContext::current().allocator();
    storage->category_ = MemoryCategoryScope::current();
    storage->data_ = storage->allocator_->allocate(static_cast<size_t>(nbytes), storage->category_);
  } else {
    DeviceBackend& backend = device_backend(device);
    void* data = backend.allocate(nbytes, device.index);
    storage->data_ = data;
    storage->release_ = [&backend, data, nbytes, index = device.index] { backend.deallocate(data, nbytes, index); };
  }
  storage->nbytes_ = nbytes;
  storage->retain();
  return storage;
}

Storage* Storage::wrap(void* data, int64_t nbytes, Device device, std::function<void()> release) {
  auto* storage = new Storage;
  storage->data_ = data;
  storage->nbytes_ = nbytes;
  storage->device_ = device;
  storage->release_ = std::move(release);
  return storage;
}

Storage* Storage::without_memory(int64_t nbytes, Device device, std::unique_ptr<StoragePlaceholder> placeholder) {
  auto* storage = new Storage;
  storage->nbytes_ = nbytes;
  storage->device_ = device;
  storage->placeholder_ = std::move(placeholder);
  return storage;
}

namespace {

class ReleasedMemory final : public StoragePlaceholder {
 public:
  ReleasedMemory() : StoragePlaceholder(StorageState::released) {}
  [[noreturn]] void refuse_data() const override {
    throw UsageError(
        "the elements of a tensor were asked for whose memory was given back by resize_storage_(t, 0); resize it to "
        "its size first, and "
        "write it");
  }
};

}  // namespace

StorageState Storage::state() const {
  if (placeholder_) return placeholder_->state();
  return writer_.load(std::memory_order_acquire) != nullptr ? StorageState::pending : StorageState::present;
}

void Storage::release_memory() {
  if (state() == StorageState::released) return;
  wait();
  TUTTI_CHECK(allocator_ != nullptr,
              "resize_storage_: the memory of {} bytes belongs to somebody else; only memory that tensors allocated "
              "can be given back",
              nbytes_);
  allocator_->deallocate(data_, static_cast<size_t>(nbytes_), category_);
  data_ = nullptr;
  placeholder_ = std::make_unique<ReleasedMemory>();
}

void Storage::restore_memory() {
  if (state() != StorageState::released) return;
  data_ = allocator_->allocate(static_cast<size_t>(nbytes_), category_);
  placeholder_ = nullptr;
}

void Storage::share_version(Storage& other) {
  other.retain();
  if (version_of_) version_of_->release();
  version_of_ = &other;
  version_at_ = other.version_at_;
}

Storage::~Storage() {
  if (version_of_) version_of_->release();
  if (allocator_ && data_) allocator_->deallocate(data_, static_cast<size_t>(nbytes_), category_);
  if (release_) release_();
}

}  // namespace tutti
