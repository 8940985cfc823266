// What the samples of an op say about its calls.
#include <map>
#include <mutex>

#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/op_schema.h"

namespace tutti::deploy {

const AttrsType* attrs_type_of(const OpDef& op) {
  if (is_collective(op)) return &attrs_type<CallAttrs>;
  static std::mutex mutex;
  static std::map<const OpDef*, const AttrsType*> known;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.emplace(&op, nullptr);
  if (is_new && op.samples != nullptr) {
    for (const Sample& sample : op.samples()) {
      if (it->second == nullptr) it->second = sample.attrs.type();
    }
  }
  return it->second;
}

const AttrsType* attrs_type_of(const OpDef& op, std::string_view name) {
  const AttrsType* type = attrs_type_of(op);
  return type != nullptr && type->name() == name ? type : nullptr;
}

}  // namespace tutti::deploy
