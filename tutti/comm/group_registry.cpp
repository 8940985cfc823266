#include "tutti/comm/group_registry.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

// Names of groups that have ended say so when they are asked for, but not for ever.
void GroupRegistry::sweep(Names& names, size_t& at) {
  if (names.size() < at) return;
  std::erase_if(names, [](const auto& entry) { return entry.second.expired(); });
  at = std::max(kSweepAt, 2 * names.size());
}

GroupRegistry& GroupRegistry::current() { return RankContext::current().slot<GroupRegistry>(); }

void GroupRegistry::add(const std::string& name, const std::shared_ptr<ProcessGroup>& group) {
  TUTTI_CHECK(group != nullptr, "process group '{}': null cannot be registered", name);
  const std::lock_guard lock(mutex_);
  sweep(groups_, sweep_at_);
  std::weak_ptr<ProcessGroup>& entry = groups_[name];
  TUTTI_CHECK(entry.expired(), "process group '{}' is already registered", name);
  entry = group;
}

std::shared_ptr<ProcessGroup> GroupRegistry::resolve(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(name);
  TUTTI_CHECK(found != groups_.end(), "process group '{}' is not registered", name);
  std::shared_ptr<ProcessGroup> group = found->second.lock();
  TUTTI_CHECK(group != nullptr, "process group '{}' is registered but already destroyed", name);
  return group;
}

bool GroupRegistry::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(name);
  return found != groups_.end() && !found->second.expired();
}

GroupRegistry::Found GroupRegistry::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  for (const auto* names : {&given_, &groups_}) {
    if (const auto found = names->find(name); found != names->end()) return {true, found->second.lock()};
  }
  return {};
}

std::string GroupRegistry::name_for(const std::shared_ptr<ProcessGroup>& group) {
  const std::lock_guard lock(mutex_);
  if (const auto own = groups_.find(group->name()); own != groups_.end() && own->second.lock() == group)
    return own->first;
  for (const auto& [name, other] : groups_) {
    if (other.lock() == group) return name;
  }
  sweep(given_, sweep_given_at_);
  for (int number = 1;; ++number) {
    const std::string name = fmt::format("{}#{}", group->name(), number);
    std::weak_ptr<ProcessGroup>& entry = given_[name];
    if (entry.expired()) entry = group;
    if (entry.lock() == group) return name;
  }
}

void GroupRegistry::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  TUTTI_CHECK(groups_.erase(name) == 1, "process group '{}' is not registered", name);
}

void GroupRegistry::clear() {
  const std::lock_guard lock(mutex_);
  groups_.clear();
  given_.clear();
}

}  // namespace tutti::comm
