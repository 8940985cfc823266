// Argument types of functional collectives: a group given as an object or by name, a reduction given by value or by
// name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/comm/process_group.h"
#include "tutti/deploy/collective_attrs.h"

namespace tutti::comm::functional {

// A group, or its name in this rank's registry (group_registry.h). UsageError for null, for a name that was never
// registered or whose group no longer exists, and for a group that is not owned by a shared_ptr.
class GroupArgument {
 public:
  GroupArgument(std::shared_ptr<ProcessGroup> group);                    // NOLINT: a group is a group argument
  GroupArgument(ProcessGroup& group);                                    // NOLINT
  GroupArgument(const std::string& name);                                // NOLINT
  GroupArgument(const char* name) : GroupArgument(std::string(name)) {}  // NOLINT

  ProcessGroup& operator*() const { return *group_; }
  ProcessGroup* operator->() const { return group_.get(); }
  const std::shared_ptr<ProcessGroup>& get() const { return group_; }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

// A reduction, or its name: "sum", "avg", "product", "min", "max", "band", "bor", "bxor". UsageError for other names;
// pass premul_sum as ReduceOp::premul_sum(factor).
class ReduceArgument {
 public:
  ReduceArgument(const ReduceOp& op) : op_(op) {}  // NOLINT: a reduction is a reduction argument
  ReduceArgument(ReduceKind kind);                 // NOLINT
  ReduceArgument(std::string_view name);           // NOLINT
  ReduceArgument(const std::string& name) : ReduceArgument(std::string_view(name)) {}  // NOLINT
  ReduceArgument(const char* name) : ReduceArgument(std::string_view(name)) {}         // NOLINT

  const ReduceOp& operator*() const { return op_; }

 private:
  ReduceOp op_;
};

// While it lives, `group` is what calls of this thread find by the name: packages name groups that another process has.
class GroupStandIn {
 public:
  GroupStandIn(const std::string* name, std::shared_ptr<ProcessGroup> group);
  ~GroupStandIn();
  GroupStandIn(const GroupStandIn&) = delete;
  GroupStandIn& operator=(const GroupStandIn&) = delete;
  static std::shared_ptr<ProcessGroup> find(const std::string* name);  // null: none

 private:
  const std::string* const name_;
  const std::shared_ptr<ProcessGroup> group_;
  const GroupStandIn* const before_;
};

}  // namespace tutti::comm::functional
