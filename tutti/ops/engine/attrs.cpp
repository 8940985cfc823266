#include "tutti/ops/engine/attrs.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tutti/ops/random_key.h"

namespace tutti {

// ---- text -----------------------------------------------------------------------------------------------------------

bool FieldReader::skip(std::string_view word) {
  size_t at = at_;
  while (at < text_.size() && text_[at] == ' ') ++at;
  if (!text_.substr(at).starts_with(word)) return false;
  at_ = at + word.size();
  return true;
}

void FieldReader::expect(std::string_view word) {
  if (!skip(word)) refuse(fmt::format("\"{}\"", word));
}

std::string_view FieldReader::word() {
  skip("");
  const size_t begin = at_;
  while (at_ < text_.size() && std::string_view(" ,:[]{}").find(text_[at_]) == std::string_view::npos) ++at_;
  return text_.substr(begin, at_ - begin);
}

int64_t FieldReader::integer(int64_t least, int64_t most) {
  const size_t begin = at_;
  const std::string_view text = word();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    at_ = begin;
    refuse(fmt::format("an integer of {} to {}", least, most));
  }
  return value;
}

double FieldReader::real() {
  const size_t begin = at_;
  const std::string text(word());
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    at_ = begin;
    refuse("a number");
  }
  return value;
}

std::string FieldReader::quoted() {
  expect("\"");
  const size_t end = text_.find('"', at_);
  if (end == std::string_view::npos) refuse("a closing \"");
  std::string text(text_.substr(at_, end - at_));
  at_ = end + 1;
  return text;
}

void FieldReader::at_end() {
  skip("");
  if (at_ != text_.size()) refuse("the end");
}

void FieldReader::refuse(const std::string& expected) const {
  throw UsageError(fmt::format("attrs: expected {} at position {} of \"{}\"", expected, at_, text_));
}

void FieldValue<bool>::parse(FieldReader& reader, bool& v) {
  v = reader.skip("true");
  if (!v) reader.expect("false");
}

void FieldValue<double>::print(double v, std::string& out) {
  const std::string text = fmt::format("{}", v);
  out += text;
  if (text.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
}

void FieldValue<Scalar>::print(const Scalar& v, std::string& out) {
  if (v.is_symbolic()) out += v.symbol().to_string();
  else if (v.is_floating()) FieldValue<double>::print(v.to_double(), out);
  else if (v.kind() == Scalar::Kind::boolean) FieldValue<bool>::print(v.to_int64() != 0, out);
  else out += std::to_string(v.to_int64());
}

void FieldValue<Scalar>::parse(FieldReader& reader, Scalar& v) {
  if (reader.skip("true")) {
    v = true;
    return;
  }
  if (reader.skip("false")) {
    v = false;
    return;
  }
  FieldReader ahead = reader;
  const bool is_integer = ahead.word().find_first_not_of("-0123456789") == std::string_view::npos;
  if (is_integer) v = reader.integer();
  else v = reader.real();
}

// ---- records --------------------------------------------------------------------------------------------------------

void print_fields(const AttrsType& type, const void* attrs, std::string& out) {
  out += '{';
  for (const FieldRecord& f : type.fields) {
    if (&f != type.fields.data()) out += ", ";
    out += f.name;
    out += ": ";
    f.type->print(f.in(attrs), out);
  }
  out += '}';
}

void parse_fields(const AttrsType& type, FieldReader& reader, void* attrs) {
  reader.expect("{");
  for (const FieldRecord& f : type.fields) {
    if (&f != type.fields.data()) reader.expect(",");
    reader.expect(f.name);
    reader.expect(":");
    f.type->parse(reader, f.at(attrs));
  }
  reader.expect("}");
}

uint64_t hash_fields(const AttrsType& type, const void* attrs, bool rules_only) {
  uint64_t h = type.fields.size();
  for (const FieldRecord& f : type.fields) {
    if (f.kind == FieldKind::nested) h = mix_hash(h, hash_fields(*f.type->nested, f.in(attrs), rules_only));
    else if (!rules_only || f.kind == FieldKind::rule || f.kind == FieldKind::output_dtype) h = mix_hash(h, f.type->hash(f.in(attrs)));
  }
  return h;
}

bool equal_fields(const AttrsType& type, const void* a, const void* b) {
  for (const FieldRecord& f : type.fields) {
    if (!f.type->equal(f.in(a), f.in(b))) return false;
  }
  return true;
}

void map_sizes_of(const AttrsType& type, void* attrs, FunctionRef<SymInt(SymInt)> map) {
  for (const FieldRecord& f : type.fields) {
    if (f.kind == FieldKind::nested) map_sizes_of(*f.type->nested, f.at(attrs), map);
    else if (f.kind == FieldKind::size) f.type->map_sizes(f.at(attrs), map);
  }
}

static void visit_keys_of(const AttrsType& type, void* attrs, FunctionRef<void(RandomKey&)> visit) {
  for (const FieldRecord& f : type.fields) {
    if (f.kind == FieldKind::nested) visit_keys_of(*f.type->nested, f.at(attrs), visit);
    else if (f.kind == FieldKind::random_key) visit(*static_cast<RandomKey*>(f.at(attrs)));
  }
}

// ---- attrs ----------------------------------------------------------------------------------------------------------

std::string_view Attrs::type_name() const { return type_ == nullptr ? "none" : type_->name; }

std::string Attrs::to_string() const {
  std::string text;
  if (type_ != nullptr) print_fields(*type_, bytes_, text);
  return text;
}

Attrs Attrs::from_text(const AttrsType& type, std::string_view text) {
  Attrs a;
  a.type_ = &type;
  a.size_ = type.size;
  std::memset(a.bytes_, 0, a.size_);
  FieldReader reader(text);
  parse_fields(type, reader, a.bytes_);
  reader.at_end();
  return a;
}

bool operator==(const Attrs& a, const Attrs& b) { return a.type_ == b.type_ && (a.type_ == nullptr || equal_fields(*a.type_, a.bytes_, b.bytes_)); }

uint64_t Attrs::hash() const { return type_ == nullptr ? 0 : hash_fields(*type_, bytes_, false); }
uint64_t Attrs::rules_hash() const { return hash_fields(*type_, bytes_, true); }

void Attrs::map_sizes(FunctionRef<SymInt(SymInt)> map) {
  if (type_ != nullptr) map_sizes_of(*type_, bytes_, map);
}

void Attrs::visit_keys(FunctionRef<void(RandomKey&)> visit) {
  if (type_ != nullptr) visit_keys_of(*type_, bytes_, visit);
}

}  // namespace tutti
