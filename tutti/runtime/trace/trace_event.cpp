#include "tutti/runtime/trace/trace_event.h"

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <tuple>

namespace tutti {

const char* intern_trace_name(std::string_view name) noexcept {
  constexpr size_t kMaxNames = 1 << 16;
  static std::mutex mutex;
  try {
    static auto* names = new std::set<std::string, std::less<>>;  // outlives all threads; nodes do not move
    const std::lock_guard lock(mutex);
    if (const auto it = names->find(name); it != names->end()) return it->c_str();
    if (names->size() >= kMaxNames) return "(too many names)";
    return names->emplace(name).first->c_str();
  } catch (const std::bad_alloc&) {
    return "(no memory for the name)";
  }
}

const TraceGroup& intern_trace_group(const TraceGroup& group) {
  using Key = std::tuple<std::string, std::string, std::vector<int>>;
  static std::mutex mutex;
  static auto* groups = new std::map<Key, std::unique_ptr<const TraceGroup>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const TraceGroup>& kept = (*groups)[{group.name, group.description, group.ranks}];
  if (!kept) kept = std::make_unique<const TraceGroup>(group);
  return *kept;
}

}  // namespace tutti
