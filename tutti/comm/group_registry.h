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
  // A name by which find() knows `group` on this rank as long as it exists: one that it is registered under, or else
  // one given here, such as name#1, which the other functions do not know.
  std::string name_for(const std::shared_ptr<ProcessGroup>& group);
  // Without errors: whether the name was registered or given, and its group, which is null when it no longer exists.
  struct Found {
    bool is_known = false;
    std::shared_ptr<ProcessGroup> group;
  };
  Found find(const std::string& name) const;
  // UsageError when the name was never registered.
  void remove(const std::string& name);
  void clear();

 private:
  using Names = std::map<std::string, std::weak_ptr<ProcessGroup>>;
  static constexpr size_t kSweepAt = 16;
  static void sweep(Names& names, size_t& at);

  mutable std::mutex mutex_;
  Names groups_, given_;
  size_t sweep_at_ = kSweepAt, sweep_given_at_ = kSweepAt;
};

}  // namespace tutti::comm
