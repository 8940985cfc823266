#include "tutti/comm/group_registry.h"

#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

GroupRegistry& GroupRegistry::current() { return RankContext::current().slot<GroupRegistry>(); }

void GroupRegistry::add(const std::string& name, const std::shared_ptr<ProcessGroup>& group) {
  TUTTI_CHECK(group != nullptr, "process group '{}': null cannot be registered", name);
  const std::lock_guard lock(mutex_);
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

void GroupRegistry::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  TUTTI_CHECK(groups_.erase(name) == 1, "process group '{}' is not registered", name);
}

void GroupRegistry::clear() {
  const std::lock_guard lock(mutex_);
  groups_.clear();
}

}  // namespace tutti::comm
