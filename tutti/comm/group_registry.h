// The groups of a rank by name, for graphs, configurations and messages that name a group as text.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// The groups of this rank by name. It does not keep groups alive. May be used by any thread of the rank.
class GroupRegistry {
 public:
  static GroupRegistry& current();

  // UsageError when the name belongs to a group that still exists.
  void add(const std::string& name, const std::shared_ptr<ProcessGroup>& group);
  // UsageError when the name was never registered, or (with another message) when its group no longer exists.
  std::shared_ptr<ProcessGroup> resolve(const std::string& name) const;
  bool has(const std::string& name) const;
  // UsageError when the name was never registered.
  void remove(const std::string& name);
  void clear();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<ProcessGroup>> groups_;
  static constexpr size_t kSweepAt = 16;
  size_t sweep_at_ = kSweepAt;
};

}  // namespace tutti::comm
