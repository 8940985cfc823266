#include "tutti/deploy/collective_op.h"

#include <mutex>
#include <set>

namespace tutti {
namespace deploy {
namespace {

std::set<const OpDef*>& declared() {
  static std::set<const OpDef*> ops;
  return ops;
}

}  // namespace

void declare_collective(const OpDef& op) { declared().insert(&op); }
bool is_collective(const OpDef& op) { return op.ordered && declared().contains(&op); }

const CallAttrs* collective_attrs(const OpDef& op, const Attrs& attrs) {
  if (!is_collective(op) || attrs.type() != &attrs_type<CallAttrs>) return nullptr;
  const CallAttrs& own = attrs.as<CallAttrs>();
  return own.group.name == nullptr ? nullptr : &own;
}

}  // namespace deploy

namespace comm::functional {

const std::string* name_of_group(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string, std::less<>>;  // outlives all graphs
  const std::lock_guard lock(mutex);
  return &*names->insert(name).first;
}

}  // namespace comm::functional
}  // namespace tutti
