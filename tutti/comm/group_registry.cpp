#include "tutti/comm/group_registry.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

GroupRegistry& GroupRegistry::current() { return RankContext::current().slot<GroupRegistry>(); }

void GroupRegistry::add(const std::string& name, const std::shared_ptr<ProcessGroup>& group) {
  TUTTI_CHECK(group != nullptr, "process group '{}': null cannot be registered", name);
  const std::lock_guard lock(mutex_);
  // Names of groups that have ended say so when they are asked for, but not for ever.
  if (groups_.size() >= sweep_at_) {
    std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kSweepAt, 2 * groups_.size());
  }
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
