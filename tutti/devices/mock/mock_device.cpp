#include "tutti/devices/mock/mock_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tutti/core/error.h"
#include "tutti/runtime/device_backend.h"

namespace tutti {
namespace {

constexpr int64_t kBorder = 64;  // bytes before and after a block
constexpr unsigned char kBorderByte = 0xfd;

std::string name_of_device(int index) { return to_string(Device{DeviceKind::mock, static_cast<int16_t>(index)}); }

bool all_bytes_are(const unsigned char* data, int64_t nbytes, unsigned char value) {
  return std::all_of(data, data + nbytes, [value](unsigned char byte) { return byte == value; });
}

}  // namespace

class MockDevice::Backend : public DeviceBackend {
 public:
  explicit Backend(int devices) : devices_(devices) {}

  ~Backend() override {
    for (const auto& [data, block] : live_) std::free(data - kBorder);
    for (const auto& [data, block] : freed_) std::free(data - kBorder);
  }

  int device_count() const override { return devices_; }

  void* allocate(int64_t nbytes, int index) override {
    std::lock_guard lock(mutex_);
    note(counts_.allocate, nullptr, nbytes, index);
    if (fail_allocate_ > 0 && --fail_allocate_ == 0)
      throw EnvironmentError(fmt::format("{}: out of memory: {} bytes (asked to fail)", name_of_device(index), nbytes));
    if (nbytes == 0) return nullptr;
    const int64_t whole = (nbytes + 63) / 64 * 64 + 2 * kBorder;
    auto* memory = static_cast<unsigned char*>(std::aligned_alloc(64, static_cast<size_t>(whole)));
    TUTTI_CHECK_ENV(memory != nullptr, "{}: out of memory: {} bytes", name_of_device(index), nbytes);
    std::memset(memory, kBorderByte, static_cast<size_t>(whole));
    std::memset(memory + kBorder, kFresh, static_cast<size_t>(nbytes));
    counts_.allocate.last_data = memory + kBorder;
    live_[memory + kBorder] = {nbytes, index};
    return memory + kBorder;
  }

  void deallocate(void* data, int64_t nbytes, int index) noexcept override {
    std::lock_guard lock(mutex_);
    note(counts_.deallocate, data, nbytes, index);
    if (data == nullptr) return;
    auto* bytes = static_cast<unsigned char*>(data);
    const auto entry = live_.find(bytes);
    if (entry == live_.end()) {
      complaints_ += fmt::format("{}: {} bytes freed that are not allocated\n", name_of_device(index), nbytes);
      return;
    }
    const Extent block = entry->second;
    if (block.nbytes != nbytes || block.index != index) {
      complaints_ += fmt::format("a block of {} bytes on {} was freed as {} bytes on {}\n", block.nbytes,
                                 name_of_device(block.index), nbytes, name_of_device(index));
    }
    if (!borders_are_whole(bytes, block.nbytes))
      complaints_ +=
          fmt::format("{}: written outside a block of {} bytes\n", name_of_device(block.index), block.nbytes);
    std::memset(bytes, kFreed, static_cast<size_t>(block.nbytes));
    live_.erase(entry);
    freed_[bytes] = block;  // kept, so that a late write shows and the address is not used again
  }

  void copy_from_host(void* device_data, const void* host, int64_t nbytes, int index, Stream& stream) override {
    copy(device_data, host, device_data, nullptr, nbytes, index, stream, counts_.copy_from_host);
  }
  void copy_to_host(void* host, const void* device_data, int64_t nbytes, int index, Stream& stream) override {
    copy(host, device_data, device_data, nullptr, nbytes, index, stream, counts_.copy_to_host);
  }
  void copy_on_device(void* to, const void* from, int64_t nbytes, int index, Stream& stream) override {
    copy(to, from, to, from, nbytes, index, stream, counts_.copy_on_device);
  }

  std::unique_ptr<Stream> make_stream(int index) override { return std::make_unique<MockStream>(index); }

 private:
  friend class MockDevice;
  struct Extent {
    int64_t nbytes;
    int index;
  };

  static void note(Calls& calls, const void* data, int64_t nbytes, int index) {
    calls = {calls.count + 1, data, nbytes, index};
  }

  static bool borders_are_whole(const unsigned char* data, int64_t nbytes) {
    const int64_t tail = (nbytes + 63) / 64 * 64 + kBorder - nbytes;
    return all_bytes_are(data - kBorder, kBorder, kBorderByte) && all_bytes_are(data + nbytes, tail, kBorderByte);
  }

  void check_live(const void* data, int64_t nbytes, int index) const {
    if (data == nullptr) return;
    std::lock_guard lock(mutex_);
    auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
    auto entry = live_.upper_bound(bytes);
    const bool inside = entry != live_.begin() && (--entry, bytes + nbytes <= entry->first + entry->second.nbytes &&
                                                                entry->second.index == index);
    TUTTI_CHECK(inside, "{}: a copy of {} bytes touches memory that is not one of its live blocks",
                name_of_device(index), nbytes);
  }

  // `data` and `other` are the ends that lie on the device.
  void copy(void* to, const void* from, const void* data, const void* other, int64_t nbytes, int index, Stream& stream,
            Calls& calls) {
    bool fails_late = false;
    {
      std::lock_guard lock(mutex_);
      note(calls, data, nbytes, index);
      if (fail_copy_ > 0 && --fail_copy_ == 0) {
        fails_late = failure_ == Failure::on_stream;
        if (!fails_late) fail(nbytes, index);
      }
    }
    check_live(data, nbytes, index);
    check_live(other, nbytes, index);
    stream.submit([=, this] {
      if (fails_late) fail(nbytes, index);
      check_live(data, nbytes, index);  // again: the work is late, the block may be gone
      check_live(other, nbytes, index);
      std::memmove(to, from, static_cast<size_t>(nbytes));
    });
  }

  [[noreturn]] static void fail(int64_t nbytes, int index) {
    throw EnvironmentError(fmt::format("{}: a copy of {} bytes failed (asked to fail)", name_of_device(index), nbytes));
  }

  const int devices_;
  mutable std::mutex mutex_;
  Counts counts_;
  int fail_allocate_ = 0, fail_copy_ = 0;
  Failure failure_ = Failure::at_call;
  std::map<unsigned char*, Extent> live_, freed_;
  std::string complaints_;
};

MockDevice::MockDevice(int devices) : backend_(std::make_unique<Backend>(devices)) {
  register_device_backend(DeviceKind::mock, backend_.get());
}

MockDevice::~MockDevice() {
  register_device_backend(DeviceKind::mock, nullptr);
  if (live_blocks().empty()) return;
  static auto* survivors = new std::vector<std::unique_ptr<Backend>>;
  survivors->push_back(std::move(backend_));
}

MockDevice::Counts MockDevice::counts() const {
  std::lock_guard lock(backend_->mutex_);
  return backend_->counts_;
}

void MockDevice::fail_allocate(int n) {
  std::lock_guard lock(backend_->mutex_);
  backend_->fail_allocate_ = n;
}

void MockDevice::fail_copy(int n, Failure failure) {
  std::lock_guard lock(backend_->mutex_);
  backend_->fail_copy_ = n;
  backend_->failure_ = failure;
}

std::vector<MockDevice::Block> MockDevice::live_blocks() const {
  std::lock_guard lock(backend_->mutex_);
  std::vector<Block> blocks;
  for (const auto& [data, block] : backend_->live_) blocks.push_back({data, block.nbytes, block.index});
  return blocks;
}

std::string MockDevice::report() const {
  std::lock_guard lock(backend_->mutex_);
  std::string text = backend_->complaints_;
  for (const auto& [data, block] : backend_->live_) {
    text += fmt::format("{}: {} bytes are still allocated\n", name_of_device(block.index), block.nbytes);
    if (!Backend::borders_are_whole(data, block.nbytes))
      text += fmt::format("{}: written outside a block of {} bytes\n", name_of_device(block.index), block.nbytes);
  }
  for (const auto& [data, block] : backend_->freed_) {
    if (!all_bytes_are(data, block.nbytes, kFreed))
      text +=
          fmt::format("{}: {} bytes were written after they were freed\n", name_of_device(block.index), block.nbytes);
  }
  return text;
}

std::unique_ptr<MockStream> MockDevice::make_stream(int index) {
  device_backend({DeviceKind::mock, static_cast<int16_t>(index)});  // exists
  return std::make_unique<MockStream>(index);
}

}  // namespace tutti
