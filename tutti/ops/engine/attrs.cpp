#include "tutti/ops/engine/attrs.h"

#include <map>

#include "tutti/core/hash.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/scalar.h"

namespace tutti {

// ---- values ---------------------------------------------------------------------------------------------------------

namespace {

void print_fields(const AttrsType& type, const void* attrs, std::string& out);
void parse_fields(const AttrsType& type, FieldReader& reader, void* attrs);
void map_sizes_of(const AttrsType& type, void* attrs, FunctionRef<SymInt(SymInt)> map);

void* element(const FieldType& type, void* array, size_t i) { return static_cast<std::byte*>(array) + i * type.stride; }
const void* element(const FieldType& type, const void* array, size_t i) {
  return static_cast<const std::byte*>(array) + i * type.stride;
}

void print_value(const FieldType& type, const void* value, std::string& out) {
  if (type.nested != nullptr) return print_fields(*type.nested, value, out);
  if (type.element == nullptr) return type.print(value, out);
  out += '[';
  for (size_t i = 0; i < type.count; ++i) {
    if (i > 0) out += ", ";
    print_value(*type.element, element(type, value, i), out);
  }
  out += ']';
}

void parse_value(const FieldType& type, FieldReader& reader, void* value) {
  if (type.nested != nullptr) return parse_fields(*type.nested, reader, value);
  if (type.element == nullptr) return type.parse(reader, value);
  for (size_t i = 0; i < type.count; ++i) {
    reader.expect(i == 0 ? "[" : ",");
    parse_value(*type.element, reader, element(type, value, i));
  }
  reader.expect("]");
}

uint64_t hash_value(const FieldType& type, const void* value) {
  if (type.nested != nullptr) return hash_fields(*type.nested, value, HashedFields::all);
  if (type.element == nullptr) return type.hash(value);
  uint64_t h = type.count;
  for (size_t i = 0; i < type.count; ++i) h = mix_hash(h, hash_value(*type.element, element(type, value, i)));
  return h;
}

bool equal_values(const FieldType& type, const void* a, const void* b) {
  if (type.nested != nullptr) return equal_fields(*type.nested, a, b);
  if (type.element == nullptr) return type.equal(a, b);
  for (size_t i = 0; i < type.count; ++i) {
    if (!equal_values(*type.element, element(type, a, i), element(type, b, i))) return false;
  }
  return true;
}

void map_sizes_in(const FieldType& type, void* value, FunctionRef<SymInt(SymInt)> map) {
  if (type.element == nullptr) return type.map_sizes(value, map);
  for (size_t i = 0; i < type.count; ++i) map_sizes_in(*type.element, element(type, value, i), map);
}

// ---- records --------------------------------------------------------------------------------------------------------

void print_fields(const AttrsType& type, const void* attrs, std::string& out) {
  out += '{';
  for (const FieldRecord& f : type.fields) {
    if (&f != type.fields.data()) out += ", ";
    out += f.name;
    out += ": ";
    print_value(*f.type, f.in(attrs), out);
  }
  out += '}';
}

void parse_fields(const AttrsType& type, FieldReader& reader, void* attrs) {
  reader.expect("{");
  for (const FieldRecord& f : type.fields) {
    if (&f != type.fields.data()) reader.expect(",");
    reader.expect(f.name);
    reader.expect(":");
    reader.path.push_back(f.name);
    parse_value(*f.type, reader, f.at(attrs));
    reader.path.pop_back();
  }
  reader.expect("}");
}

void map_sizes_of(const AttrsType& type, void* attrs, FunctionRef<SymInt(SymInt)> map) {
  for (const FieldRecord& f : type.fields) {
    if (f.kind == FieldKind::nested) map_sizes_of(*f.type->nested, f.at(attrs), map);
    else if (f.kind == FieldKind::size) map_sizes_in(*f.type, f.at(attrs), map);
  }
}

void visit_keys_of(const AttrsType& type, void* attrs, FunctionRef<void(RandomKey&)> visit) {
  for (const FieldRecord& f : type.fields) {
    if (f.kind == FieldKind::nested) visit_keys_of(*f.type->nested, f.at(attrs), visit);
    else if (f.kind == FieldKind::random_key) visit(*static_cast<RandomKey*>(f.at(attrs)));
  }
}

}  // namespace

namespace {

bool is_read(const FieldRecord& f, HashedFields which) {
  switch (which) {
    case HashedFields::all:
      return true;
    case HashedFields::rules:
      return f.kind == FieldKind::rule || f.kind == FieldKind::output_dtype;
    case HashedFields::layout:
      return f.kind != FieldKind::random_key && f.type != &field_types::kDouble;
  }
  return true;
}

// Whether no more than the kind of a scalar is read.
bool reads_kind(const FieldRecord& f, HashedFields which) {
  return which == HashedFields::layout && f.type == &field_types::kScalar;
}
uint64_t kind_in(const FieldRecord& f, const void* attrs) {
  return static_cast<uint64_t>(static_cast<const Scalar*>(f.in(attrs))->kind());
}

}  // namespace

uint64_t hash_fields(const AttrsType& type, const void* attrs, HashedFields which) {
  uint64_t h = type.fields.size();
  for (const FieldRecord& f : type.fields) {
    if (f.kind == FieldKind::nested) h = mix_hash(h, hash_fields(*f.type->nested, f.in(attrs), which));
    else if (reads_kind(f, which)) h = mix_hash(h, kind_in(f, attrs));
    else if (is_read(f, which)) h = mix_hash(h, hash_value(*f.type, f.in(attrs)));
  }
  return h;
}

bool equal_fields(const AttrsType& type, const void* a, const void* b, HashedFields which) {
  for (const FieldRecord& f : type.fields) {
    bool equal = true;
    if (f.kind == FieldKind::nested) equal = equal_fields(*f.type->nested, f.in(a), f.in(b), which);
    else if (reads_kind(f, which)) equal = kind_in(f, a) == kind_in(f, b);
    else if (is_read(f, which)) equal = equal_values(*f.type, f.in(a), f.in(b));
    if (!equal) return false;
  }
  return true;
}

// The compiler writes "... [with T = tutti::PadAttrs]".
std::string_view AttrsType::name() const {
  std::string_view text = signature;
  text = text.substr(text.find("T = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}

// ---- types by name --------------------------------------------------------------------------------------------------

#ifdef TUTTI_RUNTIME_ONLY
namespace {

std::map<std::string_view, const AttrsType*>& known_types() {
  static std::map<std::string_view, const AttrsType*> types;
  return types;
}

}  // namespace

// Called while the library is loaded, by one thread.
bool attrs_detail::enter(const AttrsType& type) { return known_types().emplace(type.name(), &type).second; }

const AttrsType* attrs_type_named(std::string_view name) {
  const auto it = known_types().find(name);
  return it == known_types().end() ? nullptr : it->second;
}
#endif

// ---- attrs ----------------------------------------------------------------------------------------------------------

std::string_view Attrs::type_name() const { return type_ == nullptr ? "none" : type_->name(); }

void Attrs::refuse(const AttrsType& expected) const {
  TUTTI_ASSERT(type_ == &expected, "attrs are {}, and {} was expected", type_name(), expected.name());
}

std::string Attrs::to_string() const {
  std::string text;
  if (type_ != nullptr) print_fields(*type_, bytes_, text);
  return text;
}

Attrs Attrs::from_text(const AttrsType& type, std::string_view text, std::string_view op) {
  Attrs a;
  a.type_ = &type;
  a.size_ = type.size;
  std::memset(a.bytes_, 0, a.size_);
  FieldReader reader(text, op);
  parse_fields(type, reader, a.bytes_);
  reader.at_end();
  return a;
}

bool operator==(const Attrs& a, const Attrs& b) {
  return a.type_ == b.type_ && (a.type_ == nullptr || equal_fields(*a.type_, a.bytes_, b.bytes_));
}

uint64_t Attrs::hash() const { return type_ == nullptr ? 0 : place_of(hash_fields(*type_, bytes_, HashedFields::all)); }
uint64_t Attrs::hash_of_layout() const {
  return type_ == nullptr ? 0 : place_of(hash_fields(*type_, bytes_, HashedFields::layout));
}
uint64_t Attrs::rules_hash() const { return place_of(hash_fields(*type_, bytes_, HashedFields::rules)); }
bool Attrs::equal_in(const Attrs& other, HashedFields which) const {
  return equal_fields(*type_, bytes_, other.bytes_, which);
}

bool Attrs::set_output_dtype(DType dtype) {
  bool found = false;
  for (const FieldRecord& f : type_ == nullptr ? std::span<const FieldRecord>() : type_->fields) {
    if (f.kind != FieldKind::output_dtype || f.type != &field_types::kDType) continue;
    *static_cast<DType*>(const_cast<void*>(f.in(bytes_))) = dtype;
    found = true;
  }
  return found;
}

void Attrs::map_sizes(FunctionRef<SymInt(SymInt)> map) {
  if (type_ != nullptr) map_sizes_of(*type_, bytes_, map);
}

void Attrs::visit_keys(FunctionRef<void(RandomKey&)> visit) {
  if (type_ != nullptr) visit_keys_of(*type_, bytes_, visit);
}

}  // namespace tutti
