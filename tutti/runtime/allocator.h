// The caching host allocator: 64-byte aligned blocks that are kept for reuse and counted by category.
//
// Any thread may allocate and free; a block must be returned to the allocator it came from. Allocators are never
// destroyed, because a tensor may outlive the rank that created it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace tutti {

enum class MemoryCategory : uint8_t { activations, parameters, gradients, optimizer, workspace, data };
inline constexpr int kNumMemoryCategories = 6;
std::string_view name_of(MemoryCategory category);

// Tensors created on this thread while the scope lives are counted under `category`.
class MemoryCategoryScope {
 public:
  explicit MemoryCategoryScope(MemoryCategory category);
  ~MemoryCategoryScope();
  MemoryCategoryScope(const MemoryCategoryScope&) = delete;
  MemoryCategoryScope& operator=(const MemoryCategoryScope&) = delete;
  static MemoryCategory current();

 private:
  MemoryCategory previous_;
};

struct MemoryStatistics {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;      // highest current_bytes since the last reset_peak()
  int64_t reserved_bytes = 0;  // obtained from the operating system, in use or cached
  std::array<int64_t, kNumMemoryCategories> current_by_category{};
  std::array<int64_t, kNumMemoryCategories> at_peak_by_category{};  // the composition of peak_bytes
  int64_t allocations = 0;
};

class Allocator {
 public:
  static constexpr size_t kAlignment = 64;

  static Allocator* create();

  // At least `nbytes` bytes, uninitialized; nullptr for 0. EnvironmentError, with the numbers, when there is not enough
  // memory.
  void* allocate(size_t nbytes, MemoryCategory category);
  void deallocate(void* block, size_t nbytes, MemoryCategory category) noexcept;

  MemoryStatistics statistics() const;
  void reset_peak();
  void release_cached();  // returns unused blocks to the operating system

 private:
  Allocator() = default;
  void count_locked(size_t nbytes, MemoryCategory category);
  static constexpr int kClasses = 4 * 48;

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  MemoryStatistics statistics_;
};

}  // namespace tutti
