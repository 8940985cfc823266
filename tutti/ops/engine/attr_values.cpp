#include "tutti/ops/engine/attr_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tutti/core/dtype.h"
#include "tutti/core/error.h"
#include "tutti/core/shape.h"
#include "tutti/ops/scalar.h"

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

size_t FieldReader::one_of(size_t count, FunctionRef<std::string(size_t)> word_of) {
  skip("");
  const size_t begin = at_;
  const std::string_view found = word();
  std::string words;
  for (size_t i = 0; i < count; ++i) {
    const std::string legal = word_of(i);
    if (found == std::string_view(legal).substr(0, legal.find(' '))) return i;
    words += fmt::format("{}{}", i == 0 ? "" : ", ", legal);
  }
  at_ = begin;
  refuse("one of " + words);
}

void FieldReader::refuse(const std::string& expected) const {
  std::string where = op_.empty() ? "attrs" : fmt::format("{}: attrs", op_);
  for (const std::string_view& field : path)
    where += fmt::format("{}{}", &field == path.data() ? ": field " : ".", field);
  FieldReader rest = *this;
  const std::string_view word = rest.word();
  const std::string_view found = word.empty() ? text_.substr(std::min(at_, text_.size()), 1) : word;
  throw UsageError(fmt::format("{}: expected {} and found {} at position {} of \"{}\"", where, expected,
                               found.empty() ? "nothing" : fmt::format("\"{}\"", found), at_, text_));
}

// ---- types ----------------------------------------------------------------------------------------------------------

namespace {

void print(bool v, std::string& out) { out += v ? "true" : "false"; }
void parse(FieldReader& reader, bool& v) {
  v = reader.skip("true");
  if (!v) reader.expect("false");
}

template <std::integral T>
void print(T v, std::string& out) {
  out += std::to_string(static_cast<int64_t>(v));
}
template <std::integral T>
void parse(FieldReader& reader, T& v) {
  using Limits = std::numeric_limits<T>;
  if constexpr (sizeof(T) == sizeof(int64_t))
    v = static_cast<T>(reader.integer());  // all 64 bits, with or without a sign
  else v = static_cast<T>(reader.integer(Limits::min(), Limits::max()));
}

void print(DType v, std::string& out) { out += name_of(v); }
void parse(FieldReader& reader, DType& v) {
  v = static_cast<DType>(
      reader.one_of(kNumDTypes, [](size_t i) { return std::string(name_of(static_cast<DType>(i))); }));
}

void print(double v, std::string& out) { FieldValue<double>::print(v, out); }
void parse(FieldReader& reader, double& v) { v = reader.real(); }
uint64_t hash(double v) { return std::bit_cast<uint64_t>(v); }
bool equal(double a, double b) { return FieldValue<double>::equal(a, b); }

void print(SymInt v, std::string& out) { out += v.to_string(); }
void parse(FieldReader& reader, SymInt& v) { v = reader.integer(); }
uint64_t hash(SymInt v) { return static_cast<uint64_t>(v.raw()); }
bool equal(SymInt a, SymInt b) { return a.raw() == b.raw(); }
void map_sizes(SymInt& v, FunctionRef<SymInt(SymInt)> map) { v = map(v); }

void print(const Scalar& v, std::string& out) {
  if (v.is_symbolic()) out += v.symbol().to_string();
  else if (v.is_floating()) print(v.to_double(), out);
  else if (v.kind() == Scalar::Kind::boolean) print(v.to_int64() != 0, out);
  else print(v.to_int64(), out);
}
void parse(FieldReader& reader, Scalar& v) {
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
uint64_t hash(const Scalar& v) { return mix_hash(static_cast<uint64_t>(v.kind()), v.raw()); }
bool equal(const Scalar& a, const Scalar& b) {
  return a.kind() == b.kind() && a.is_symbolic() == b.is_symbolic() && a.raw() == b.raw();
}
void map_sizes(Scalar& v, FunctionRef<SymInt(SymInt)> map) { v.map_symbol(map); }

using Handle = const void*;
void print(Handle v, std::string& out) { out += v == nullptr ? "null" : "<handle>"; }
[[noreturn]] void parse(FieldReader& reader, Handle&) {
  reader.refuse("attrs without a handle on something alive, which text cannot hold,");
}
uint64_t hash(Handle v) { return reinterpret_cast<uintptr_t>(v); }

// Numbers are their own hash.
template <class T>
  requires std::integral<T> || std::is_enum_v<T>
uint64_t hash(T v) {
  return static_cast<uint64_t>(v);
}
template <class T>
  requires std::integral<T> || std::is_enum_v<T> || std::is_pointer_v<T>
bool equal(T a, T b) {
  return a == b;
}

template <class T>
void print(const InlineDims<T>& list, std::string& out) {
  out += '[';
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += ", ";
    print(list[i], out);
  }
  out += ']';
}
template <class T>
void parse(FieldReader& reader, InlineDims<T>& list) {
  reader.expect("[");
  list = {};
  while (!reader.skip("]")) {
    if (!list.empty()) reader.expect(",");
    T v{};
    parse(reader, v);
    list.push_back(v);
  }
}
template <class T>
uint64_t hash(const InlineDims<T>& list) {
  uint64_t h = list.size();
  for (const T& v : list) h = mix_hash(h, hash(v));
  return h;
}
template <class T>
bool equal(const InlineDims<T>& a, const InlineDims<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i])) return false;
  }
  return true;
}
void map_sizes(Shape& list, FunctionRef<SymInt(SymInt)> map) {
  for (SymInt& v : list) map_sizes(v, map);
}

template <class T>
constexpr FieldType type_without_sizes() {
  return {.print = [](const void* v, std::string& out) { print(*static_cast<const T*>(v), out); },
          .parse = [](FieldReader& reader, void* v) { parse(reader, *static_cast<T*>(v)); },
          .hash = [](const void* v) { return hash(*static_cast<const T*>(v)); },
          .equal = [](const void* a,
                      const void* b) { return equal(*static_cast<const T*>(a), *static_cast<const T*>(b)); }};
}
template <class T>
constexpr FieldType enum_type() {
  FieldType type = type_without_sizes<T>();
  type.is_enum = true;
  return type;
}
template <class T>
constexpr FieldType type_with_sizes() {
  FieldType type = type_without_sizes<T>();
  type.map_sizes = [](void* v, FunctionRef<SymInt(SymInt)> map) { map_sizes(*static_cast<T*>(v), map); };
  return type;
}

}  // namespace

void FieldValue<double>::print(double v, std::string& out) {
  const std::string text = fmt::format("{}", v);
  out += text;
  if (text.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
}

namespace field_types {

constinit const FieldType kBool = type_without_sizes<bool>(), kDType = enum_type<DType>(),
                          kDouble = type_without_sizes<double>(), kSymInt = type_with_sizes<SymInt>(),
                          kScalar = type_with_sizes<Scalar>(), kDims = type_without_sizes<Dims>(),
                          kShape = type_with_sizes<Shape>(), kHandle = type_without_sizes<Handle>();
constinit const FieldType kIntegers[8] = {type_without_sizes<uint8_t>(),  type_without_sizes<uint16_t>(),
                                          type_without_sizes<uint32_t>(), type_without_sizes<uint64_t>(),
                                          type_without_sizes<int8_t>(),   type_without_sizes<int16_t>(),
                                          type_without_sizes<int32_t>(),  type_without_sizes<int64_t>()};

}  // namespace field_types
}  // namespace tutti
