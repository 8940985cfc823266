#include "tutti/deploy/op_schema.h"

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

uint64_t schema_of(const OpDef& op, const AttrsType* attrs) {
  std::string text = fmt::format("{} {} {}", op.name, op.num_inputs, op.num_outputs);
  for (const int8_t w : op.writes) text += fmt::format(" {}", w);
  for (const int8_t b : op.becomes) text += fmt::format(" {}", b);
  if (attrs != nullptr) describe(*attrs, text);
  return hash64(text);
}

std::string text_of(const Attrs& attrs) { return std::string(attrs.type_name()) + attrs.to_string(); }

Attrs attrs_of(const OpDef& op, std::string_view text) {
  const std::string_view name = text.substr(0, text.find('{'));
  const AttrsType* type = attrs_type_of(op, name);
  TUTTI_CHECK(type != nullptr, "{}: its calls have no options of the type {}", op.name, name);
  return Attrs::from_text(*type, text.substr(name.size()), op.name);
}

}  // namespace tutti::deploy
