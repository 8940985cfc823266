#include "tutti/comm/functional/arguments.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "tutti/comm/group_registry.h"
#include "tutti/core/error.h"

namespace tutti::comm::functional {
namespace {

// The groups that ops of this process refer to. Holds no group alive; numbers are never used again.
class GroupTable {
 public:
  static GroupTable& instance() {
    static GroupTable* table = new GroupTable;
    return *table;
  }

  int64_t number_of(const std::shared_ptr<ProcessGroup>& group) {
    const std::lock_guard lock(mutex_);
    const auto found = numbers_.find(group.get());
    if (found != numbers_.end()) {
      if (!groups_.at(found->second).group.expired()) return found->second;
      numbers_.erase(found);  // a group that stood at the same address before
    }
    if (numbers_.size() >= forget_at_) forget_dead();
    const int64_t number = next_++;
    numbers_[group.get()] = number;
    groups_[number] = {group, group->name()};
    return number;
  }

  std::shared_ptr<ProcessGroup> find(int64_t number, const char* op) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find(number);
    std::shared_ptr<ProcessGroup> group = found == groups_.end() ? nullptr : found->second.group.lock();
    TUTTI_CHECK(group != nullptr, "{}: the process group '{}' it was called with is already destroyed; keep the group until backward is done",
                op, found == groups_.end() ? "?" : found->second.name);
    return group;
  }

 private:
  struct Known {
    std::weak_ptr<ProcessGroup> group;
    std::string name;
  };

  // A group of long ago is forgotten with its name.
  void forget_dead() {
    std::erase_if(numbers_, [&](const auto& entry) { return groups_.at(entry.second).group.expired(); });
    std::erase_if(groups_, [](const auto& entry) { return entry.second.group.expired(); });
    forget_at_ = std::max<size_t>(1024, 2 * numbers_.size());
  }

  std::mutex mutex_;
  std::map<const ProcessGroup*, int64_t> numbers_;
  std::map<int64_t, Known> groups_;
  int64_t next_ = 0;
  size_t forget_at_ = 1024;
};

}  // namespace

GroupArgument::GroupArgument(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {
  TUTTI_CHECK(group_ != nullptr, "functional collective: the process group is null; this rank may not be a member of it");
}
GroupArgument::GroupArgument(ProcessGroup& group) : group_(group.weak_from_this().lock()) {
  TUTTI_CHECK(group_ != nullptr, "functional collective: no shared_ptr owns the process group '{}'; make it with std::make_shared", group.name());
}
GroupArgument::GroupArgument(const std::string& name) : group_(GroupRegistry::current().resolve(name)) {}

ReduceArgument::ReduceArgument(ReduceKind kind) : op_(kind) {
  TUTTI_CHECK(kind != ReduceKind::premul_sum, "reduce op premul_sum needs its factor; give ReduceOp::premul_sum(factor)");
}
ReduceArgument::ReduceArgument(std::string_view name) : ReduceArgument(reduce_kind_from_name(name)) {}

GroupRef GroupRef::of(const GroupArgument& group) {
  return {GroupTable::instance().number_of(group.get()), static_cast<int32_t>(group->rank()), static_cast<int32_t>(group->size())};
}

std::shared_ptr<ProcessGroup> GroupRef::resolve(const char* op) const { return GroupTable::instance().find(id, op); }

}  // namespace tutti::comm::functional
