#include "tutti/comm/functional/arguments.h"

#include "tutti/comm/group_registry.h"
#include "tutti/core/error.h"

namespace tutti::comm::functional {
namespace {

thread_local const GroupStandIn* last_stand_in = nullptr;

}  // namespace

GroupArgument::GroupArgument(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {
  TUTTI_CHECK(group_ != nullptr,
              "functional collective: the process group is null; this rank may not be a member of it");
}
GroupArgument::GroupArgument(ProcessGroup& group) : group_(group.weak_from_this().lock()) {
  TUTTI_CHECK(group_ != nullptr,
              "functional collective: no shared_ptr owns the process group '{}'; make it with std::make_shared",
              group.name());
}
GroupArgument::GroupArgument(const std::string& name) : group_(GroupRegistry::current().resolve(name)) {}

ReduceArgument::ReduceArgument(ReduceKind kind) : op_(kind) {
  TUTTI_CHECK(kind != ReduceKind::premul_sum,
              "reduce op premul_sum needs its factor; give ReduceOp::premul_sum(factor)");
}
ReduceArgument::ReduceArgument(std::string_view name) : ReduceArgument(reduce_kind_from_name(name)) {}

GroupRef GroupRef::of(const GroupArgument& group) {
  const std::string name = GroupRegistry::current().name_for(group.get());
  return {name_of_group(name), static_cast<int32_t>(group->size())};
}

GroupStandIn::GroupStandIn(const std::string* name, std::shared_ptr<ProcessGroup> group)
    : name_(name), group_(std::move(group)), before_(last_stand_in) {
  last_stand_in = this;
}
GroupStandIn::~GroupStandIn() { last_stand_in = before_; }

std::shared_ptr<ProcessGroup> GroupStandIn::find(const std::string* name) {
  for (const GroupStandIn* s = last_stand_in; s != nullptr; s = s->before_) {
    if (s->name_ == name) return s->group_;
  }
  return nullptr;
}

std::shared_ptr<ProcessGroup> GroupRef::resolve(const char* op) const {
  if (auto group = GroupStandIn::find(name)) return group;
  const GroupRegistry::Found found = GroupRegistry::current().find(*name);
  TUTTI_CHECK(found.is_known,
              "{}: the process group '{}' it was called with is not registered on this rank: it was destroyed and "
              "forgotten, or its name was "
              "removed; keep the group and its name until backward is done",
              op, *name);
  TUTTI_CHECK(
      found.group != nullptr,
      "{}: the process group '{}' it was called with is already destroyed; keep the group until backward is done", op,
      *name);
  return found.group;
}

}  // namespace tutti::comm::functional
