#include "tutti/runtime/allocator.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/runtime/size_class.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {
namespace {

thread_local MemoryCategory current_category = MemoryCategory::activations;

// Blocks of this size and up are asked for in huge pages: the first touch of a 4 KiB page costs more than its use.
constexpr size_t kHugePage = size_t{2} << 20;

void* from_system(size_t nbytes) {
  const bool huge = nbytes >= kHugePage;
  void* block = std::aligned_alloc(huge ? kHugePage : Allocator::kAlignment,
                                   huge ? (nbytes + kHugePage - 1) / kHugePage * kHugePage : nbytes);
  if (huge && block != nullptr) madvise(block, nbytes, MADV_HUGEPAGE);
  return block;
}

// Tells who profiles that `block` was taken, or given back when `nbytes` is negative.
void trace(const Allocator& allocator, const void* block, int64_t nbytes, MemoryCategory category) noexcept {
  if (!TraceRecorder::is_on()) [[likely]]
    return;
  const MemoryStatistics total = allocator.statistics();
  const int64_t now = trace_now_ns();
  TraceRecorder::record({.category = TraceCategory::memory,
                         .begin_ns = now,
                         .end_ns = now,
                         .text = name_of(category).data(),
                         .values = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(block)), nbytes,
                                    total.current_bytes, total.reserved_bytes}});
}

}  // namespace

SizeClass size_class_of(size_t nbytes) {
  const size_t units = std::max<size_t>((nbytes + 63) / 64, 1);
  if (units <= 4) return {static_cast<int>(units) - 1, units * 64};
  const int top = std::bit_width(units - 1) - 1;  // units - 1 in [2^top, 2^(top+1))
  const size_t step = size_t{1} << (top - 2);
  const size_t rounded = (units + step - 1) / step;  // in (4, 8]
  return {4 * (top - 1) + static_cast<int>(rounded - 5), rounded * step * 64};
}

std::string_view name_of(MemoryCategory category) {
  static constexpr std::string_view names[] = {"activations", "parameters", "gradients",
                                               "optimizer",   "workspace",  "data"};
  return names[static_cast<int>(category)];
}

MemoryCategoryScope::MemoryCategoryScope(MemoryCategory category)
    : previous_(std::exchange(current_category, category)) {}
MemoryCategoryScope::~MemoryCategoryScope() { current_category = previous_; }
MemoryCategory MemoryCategoryScope::current() { return current_category; }

namespace {

// All allocators of the process. Never destroyed: tensors may live longer than statics, and leak checkers look here.
struct Allocators {
  std::mutex mutex;
  std::vector<std::unique_ptr<Allocator>> list;
  size_t of_parent = 0;  // in a fork()ed child: those that it has inherited are the first ones

  static Allocators& all() {
    static Allocators& all = *new Allocators;
    return all;
  }
  static inline std::atomic<bool> is_in_child{false};
};

// Another thread may have held the lock of an inherited allocator when the child was made: its blocks are not given
// back there.
bool is_inherited(const Allocator* allocator) {
  if (!Allocators::is_in_child.load(std::memory_order_relaxed)) [[likely]]
    return false;
  Allocators& all = Allocators::all();
  const std::lock_guard lock(all.mutex);
  return std::any_of(all.list.begin(), all.list.begin() + static_cast<std::ptrdiff_t>(all.of_parent),
                     [&](const auto& a) { return a.get() == allocator; });
}

}  // namespace

Allocator* Allocator::create() {
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { Allocators::all().mutex.lock(); }, [] { Allocators::all().mutex.unlock(); },
                     [] {
                       Allocators& all = Allocators::all();
                       all.of_parent = all.list.size();
                       Allocators::is_in_child.store(true, std::memory_order_relaxed);
                       all.mutex.unlock();
                     });
  Allocators& all = Allocators::all();
  const std::lock_guard lock(all.mutex);
  return all.list.emplace_back(new Allocator).get();
}

void* Allocator::allocate(size_t nbytes, MemoryCategory category) {
  if (nbytes == 0) return nullptr;
  TUTTI_CHECK_ENV(nbytes < (size_t{1} << 50), "out of memory: {} bytes were asked for", nbytes);
  const SizeClass size = size_class_of(nbytes);
  void* block = nullptr;
  {
    std::lock_guard lock(mutex_);
    std::vector<void*>& cached = free_[static_cast<size_t>(size.index)];
    if (!cached.empty()) {
      block = cached.back();
      cached.pop_back();
      count_locked(size.nbytes, category);
    }
  }
  if (block == nullptr) {
    block = from_system(size.nbytes);
    if (block == nullptr) {
      release_cached();  // blocks of other sizes may be what is missing
      block = from_system(size.nbytes);
    }
    std::lock_guard lock(mutex_);
    TUTTI_CHECK_ENV(block != nullptr, "out of memory: {} bytes for {} failed; {} bytes are in use, {} reserved", nbytes,
                    name_of(category), statistics_.current_bytes, statistics_.reserved_bytes);
    statistics_.reserved_bytes += static_cast<int64_t>(size.nbytes);
    count_locked(size.nbytes, category);
  }
  trace(*this, block, static_cast<int64_t>(size.nbytes), category);
  return block;
}

void Allocator::count_locked(size_t nbytes, MemoryCategory category) {
  MemoryStatistics& s = statistics_;
  ++s.allocations;
  s.current_bytes += static_cast<int64_t>(nbytes);
  s.current_by_category[static_cast<size_t>(category)] += static_cast<int64_t>(nbytes);
  if (s.current_bytes > s.peak_bytes) {
    s.peak_bytes = s.current_bytes;
    s.at_peak_by_category = s.current_by_category;
  }
}

void Allocator::deallocate(void* block, size_t nbytes, MemoryCategory category) noexcept {
  if (block == nullptr || is_inherited(this)) return;
  const SizeClass size = size_class_of(nbytes);
  {
    std::lock_guard lock(mutex_);
    statistics_.current_bytes -= static_cast<int64_t>(size.nbytes);
    statistics_.current_by_category[static_cast<size_t>(category)] -= static_cast<int64_t>(size.nbytes);
    try {
      free_[static_cast<size_t>(size.index)].push_back(block);
    } catch (const std::bad_alloc&) {
      std::free(block);
      statistics_.reserved_bytes -= static_cast<int64_t>(size.nbytes);
    }
  }
  trace(*this, block, -static_cast<int64_t>(size.nbytes), category);
}

MemoryStatistics Allocator::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  statistics_.peak_bytes = statistics_.current_bytes;
  statistics_.at_peak_by_category = statistics_.current_by_category;
}

void Allocator::release_cached() {
  std::lock_guard lock(mutex_);
  for (std::vector<void*>& cached : free_) {
    for (void* block : cached) std::free(block);
    cached.clear();
  }
  statistics_.reserved_bytes = statistics_.current_bytes;
}

}  // namespace tutti
