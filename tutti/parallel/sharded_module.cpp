// The handles of what fully_shard() made: ShardedModule and UnshardedScope.
#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shard_group.h"

namespace tutti::parallel {
namespace {

// The groups of modules that are to be gathered ahead.
ShardGroups::List groups_of(std::span<nn::Module* const> modules, const ShardGroups& all, const char* function) {
  ShardGroups::List list;
  const auto known = all.groups();
  for (const nn::Module* module : modules) {
    TUTTI_CHECK(module != nullptr, "{}: module {} of the list is null", function, list.size());
    const auto is_of = [&](const auto& group) { return std::ranges::count(group->modules, module) > 0; };
    const auto found = std::ranges::find_if(known, is_of);
    std::string names;
    for (const auto& group : known) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", group->name());
    TUTTI_CHECK(found != known.end(),
                "{}: module '{}' was not sharded by itself, so nothing of its own is gathered; expected modules of "
                "this model that fully_shard() was called for: {}. Set lists after "
                "the whole model was sharded",
                function, module->call_name(), names);
    list.push_back(*found);
  }
  return list;
}

}  // namespace

const std::vector<std::string>& ShardedModule::parameters() const { return group_->parameters().names(); }
bool ShardedModule::is_shared() const { return group_->is_shared(); }
bool ShardedModule::is_unsharded() const { return group_->is_whole(); }
int64_t ShardedModule::stored_bytes() const { return group_->parameters().stored_bytes(); }
int64_t ShardedModule::copy_bytes() const { return group_->copy_bytes(); }

int64_t ShardedModule::all_stored_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : group_->all->groups()) bytes += group->parameters().stored_bytes();
  return bytes;
}
int64_t ShardedModule::all_copy_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : group_->all->groups()) bytes += group->copy_bytes();
  return bytes;
}

int64_t ShardedModule::shared_page_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : group_->all->groups())
    bytes += group->is_shared() ? group->copy_bytes() / group->ranks().size() : 0;
  return bytes;
}

void ShardedModule::unshard() const { group_->unshard(); }
void ShardedModule::reshard() const { group_->reshard(); }
void ShardedModule::set_reshard_after_forward(bool on) const { group_->set_reshard_after_forward(on); }
void ShardedModule::set_prefetch(int groups) const {
  TUTTI_CHECK(groups >= 0, "set_prefetch: {} groups; expected 0 or more", groups);
  group_->all->prefetched = groups;
}
void ShardedModule::set_modules_to_forward_prefetch(std::span<nn::Module* const> modules) const {
  group_->forward_prefetch = groups_of(modules, *group_->all, "set_modules_to_forward_prefetch");
}
void ShardedModule::set_modules_to_backward_prefetch(std::span<nn::Module* const> modules) const {
  group_->backward_prefetch = groups_of(modules, *group_->all, "set_modules_to_backward_prefetch");
}

UnshardedScope::UnshardedScope(const ShardedModule& root) : root_(root.group_) {
  ++root_->all->holds;
  for (const auto& group : root_->all->groups()) group->unshard();
}

UnshardedScope::~UnshardedScope() {
  if (--root_->all->holds > 0) return;
  for (const auto& group : root_->all->groups()) {
    if (group->reshards_after_forward()) group->reshard();
  }
}

}  // namespace tutti::parallel
