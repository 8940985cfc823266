#include "tutti/tensor/handle_watch.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {
namespace {

thread_local HandleNotes* notes_here = nullptr;
std::atomic<int> notes_anywhere{0};

}  // namespace

// The watched handles of one tensor. Any thread.
class WatchedHandles {
 public:
  using Losses = std::shared_ptr<std::atomic<int64_t>>;

  static WatchedHandles& of(TensorImpl& impl) {
    WatchedHandles* known = impl.handles.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    auto made = std::make_unique<WatchedHandles>();
    return impl.handles.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel) ? *made.release()
                                                                                              : *known;
  }

  void add(TensorImpl& impl, const void* handle, const Losses& losses) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& e) {
      return e.losses.expired() || (e.handle == handle && e.losses.lock() == losses);
    });
    entries_.push_back({handle, losses});
    set_bits(impl);
  }

  void lose(TensorImpl& impl, const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto count = [&](const Entry& e) {
      if (e.handle != handle) return false;
      if (const Losses losses = e.losses.lock()) losses->fetch_add(1, std::memory_order_release);
      return true;
    };
    if (std::erase_if(entries_, count) > 0) set_bits(impl);
  }

  // Bits of handles that are noted no longer go.
  void refresh(TensorImpl& impl) {
    const std::lock_guard lock(mutex_);
    set_bits(impl);
  }

 private:
  struct Entry {
    const void* handle;
    std::weak_ptr<std::atomic<int64_t>> losses;
  };
  void set_bits(TensorImpl& impl) const {
    uint64_t bits = 0, before = impl.handle_bits.load();
    for (const Entry& e : entries_) bits |= TensorImpl::bit_of(e.handle);
    // While somebody notes, a bit that nobody watches may be of a handle whose end must be told.
    while (!impl.handle_bits.compare_exchange_weak(before, notes_anywhere.load() > 0 ? before | bits : bits)) {
    }
  }
  std::mutex mutex_;  // of entries_
  std::vector<Entry> entries_;
};

TensorImpl::~TensorImpl() { delete handles.load(std::memory_order_acquire); }

void TensorImpl::handle_copied(const void* from) {
  if (notes_here != nullptr) notes_here->note(*this, from);
}

void TensorImpl::handle_moved(const void* from, const void* to) {
  if (notes_here != nullptr && notes_here->handles_.contains(from)) notes_here->note(*this, to);
  handle_lost(from);
}

void TensorImpl::handle_lost(const void* handle) {
  if (notes_here != nullptr) notes_here->handles_.erase(handle);
  WatchedHandles::of(*this).lose(*this, handle);
}

HandleNotes::HandleNotes() : previous_(std::exchange(notes_here, this)) { ++notes_anywhere; }
HandleNotes::~HandleNotes() {
  notes_here = previous_;
  --notes_anywhere;
  for (const auto& [handle, impl] : handles_) WatchedHandles::of(*impl).refresh(*impl);
}
HandleNotes* HandleNotes::current() { return notes_here; }
HandleNotes::Pause::Pause() : notes_(std::exchange(notes_here, nullptr)) {}
HandleNotes::Pause::~Pause() { notes_here = notes_; }

void HandleNotes::read(const Tensor& t) { note(*t.impl(), &t); }

void HandleNotes::note(TensorImpl& impl, const void* handle) {
  WatchedHandles::of(impl);
  impl.handle_bits.fetch_or(TensorImpl::bit_of(handle));  // so that its end is told
  handles_[handle] = &impl;
}

bool HandleNotes::has_handle_of(const Tensor& t) const {
  return std::any_of(handles_.begin(), handles_.end(), [&](const auto& h) { return h.second == t.impl(); });
}

void HandleNotes::forget(const Tensor& t) {
  std::erase_if(handles_, [&](const auto& h) { return h.second == t.impl(); });
}

void HandleNotes::watch(const std::shared_ptr<std::atomic<int64_t>>& losses) const {
  for (const auto& [handle, impl] : handles_) WatchedHandles::of(*impl).add(*impl, handle, losses);
}

}  // namespace tutti
