#include "tutti/deploy/op_schema.h"

#include <map>
#include <mutex>

#include "tutti/core/hash.h"

namespace tutti::deploy {
namespace {

void describe(const AttrsType& type, std::string& text) {
  text += fmt::format("{}{{", type.name());
  for (const FieldRecord& f : type.fields) {
    text += fmt::format("{}:{},", f.name, static_cast<int>(f.kind));
    if (f.kind == FieldKind::nested) describe(*f.type->nested, text);
  }
  text += "}";
}

}  // namespace

const AttrsType* attrs_type_of(const OpDef& op) {
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

uint64_t schema_of(const OpDef& op) {
  std::string text = fmt::format("{} {} {}", op.name, op.num_inputs, op.num_outputs);
  for (const int8_t w : op.writes) text += fmt::format(" {}", w);
  for (const int8_t b : op.becomes) text += fmt::format(" {}", b);
  if (const AttrsType* type = attrs_type_of(op)) describe(*type, text);
  return hash64(text);
}

}  // namespace tutti::deploy
