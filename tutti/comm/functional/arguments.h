// Argument types of functional collectives: a group given as an object or by name, a reduction given by value or by
// name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/comm/process_group.h"

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

// A group for the attrs of ops, which are plain bytes and may outlive the group: its name, by which
// the registry of the rank that runs the op finds it.
struct GroupRef {
  const std::string* name = nullptr;  // kept once per process and name: see name_of_group()
  int32_t ranks = 1;

  // A group that nobody registered is given a name, see GroupRegistry::name_for().
  static GroupRef of(const GroupArgument& group);
  // The group of that name on this rank. UsageError, naming the op, when it no longer exists, or was never registered
  // here.
  std::shared_ptr<ProcessGroup> resolve(const char* op) const;
};

// The one copy of `name` in the process, which is never freed.
const std::string* name_of_group(const std::string& name);

}  // namespace tutti::comm::functional
