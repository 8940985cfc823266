// How the members of attrs are printed, read, hashed and compared, by their type. See attr_fields.h.
#pragma once

#include <bit>
#include <concepts>
#include <limits>
#include <utility>

#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"
#include "tutti/ops/engine/attr_fields.h"
#include "tutti/ops/scalar.h"

namespace tutti {

// Reads what FieldValue::print() wrote. UsageError naming what was expected and where.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : text_(text) {}
  // Whether `word` comes next; it is then passed.
  bool skip(std::string_view word);
  void expect(std::string_view word);
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(), int64_t most = std::numeric_limits<int64_t>::max());
  double real();
  // Up to the next of ",]})" and spaces.
  std::string_view word();
  std::string quoted();
  void at_end();
  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// The same for all fields of a struct.
void print_fields(const AttrsType& type, const void* attrs, std::string& out);
void parse_fields(const AttrsType& type, FieldReader& reader, void* attrs);
uint64_t hash_fields(const AttrsType& type, const void* attrs, bool rules_only);
bool equal_fields(const AttrsType& type, const void* a, const void* b);
void map_sizes_of(const AttrsType& type, void* attrs, FunctionRef<SymInt(SymInt)> map);

inline uint64_t mix_hash(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ull;
  return h ^ h >> 29;
}

// A value that is one number, without sizes.
struct PlainFieldValue {
  static constexpr bool kIsHandle = false, kHoldsSizes = false;
  static constexpr const AttrsType* nested() { return nullptr; }
  static void map_sizes(auto&, FunctionRef<SymInt(SymInt)>) {}
  static uint64_t hash(const auto& v) { return static_cast<uint64_t>(v); }
  static bool equal(const auto& a, const auto& b) { return a == b; }
};

template <class T>
  requires(std::integral<T> && !std::same_as<T, bool>)
struct FieldValue<T> : PlainFieldValue {
  static void print(T v, std::string& out) { out += std::to_string(v); }
  static void parse(FieldReader& reader, T& v) {
    using Limits = std::numeric_limits<T>;
    const bool fits = std::in_range<int64_t>(Limits::max());
    v = static_cast<T>(reader.integer(static_cast<int64_t>(Limits::min()), fits ? static_cast<int64_t>(Limits::max()) : INT64_MAX));
  }
};
template <>
struct FieldValue<uint64_t> : PlainFieldValue {  // all 64 bits
  static void print(uint64_t v, std::string& out) { out += std::to_string(static_cast<int64_t>(v)); }
  static void parse(FieldReader& reader, uint64_t& v) { v = static_cast<uint64_t>(reader.integer()); }
};
template <>
struct FieldValue<bool> : PlainFieldValue {
  static void print(bool v, std::string& out) { out += v ? "true" : "false"; }
  static void parse(FieldReader& reader, bool& v);
};
template <class T>
  requires std::is_enum_v<T>
struct FieldValue<T> : PlainFieldValue {
  static void print(T v, std::string& out) { out += std::to_string(static_cast<int64_t>(v)); }
  static void parse(FieldReader& reader, T& v) { v = static_cast<T>(reader.integer()); }
};
template <>
struct FieldValue<DType> : PlainFieldValue {
  static void print(DType v, std::string& out) { out += name_of(v); }
  static void parse(FieldReader& reader, DType& v) { v = dtype_from_name(reader.word()); }
};
// By bits: -0.0 is not 0.0, and a NaN is itself.
template <>
struct FieldValue<double> : PlainFieldValue {
  static void print(double v, std::string& out);
  static void parse(FieldReader& reader, double& v) { v = reader.real(); }
  static uint64_t hash(double v) { return std::bit_cast<uint64_t>(v); }
  static bool equal(double a, double b) { return hash(a) == hash(b); }
};

template <>
struct FieldValue<SymInt> : PlainFieldValue {
  static constexpr bool kHoldsSizes = true;
  static void print(SymInt v, std::string& out) { out += v.to_string(); }
  static void parse(FieldReader& reader, SymInt& v) { v = reader.integer(); }
  static uint64_t hash(SymInt v) { return static_cast<uint64_t>(v.raw()); }
  static bool equal(SymInt a, SymInt b) { return a.raw() == b.raw(); }
  static void map_sizes(SymInt& v, FunctionRef<SymInt(SymInt)> map) {
    if (v.is_symbolic()) v = map(v);
  }
};
template <>
struct FieldValue<Scalar> : PlainFieldValue {
  static constexpr bool kHoldsSizes = true;
  static void print(const Scalar& v, std::string& out);
  static void parse(FieldReader& reader, Scalar& v);
  static uint64_t hash(const Scalar& v) { return mix_hash(static_cast<uint64_t>(v.kind()), v.raw()); }
  static bool equal(const Scalar& a, const Scalar& b) { return a.kind() == b.kind() && a.is_symbolic() == b.is_symbolic() && a.raw() == b.raw(); }
  static void map_sizes(Scalar& v, FunctionRef<SymInt(SymInt)> map) { v.map_symbol(map); }
};

// Lists compare the elements that they have.
template <class List, class T>
struct ListFieldValue : PlainFieldValue {
  static constexpr bool kHoldsSizes = FieldValue<T>::kHoldsSizes;
  static void print(const List& list, std::string& out) {
    out += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out += ", ";
      FieldValue<T>::print(list[i], out);
    }
    out += ']';
  }
  static uint64_t hash(const List& list) {
    uint64_t h = list.size();
    for (const T& v : list) h = mix_hash(h, FieldValue<T>::hash(v));
    return h;
  }
  static bool equal(const List& a, const List& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!FieldValue<T>::equal(a[i], b[i])) return false;
    }
    return true;
  }
  static void map_sizes(List& list, FunctionRef<SymInt(SymInt)> map) {
    for (T& v : list) FieldValue<T>::map_sizes(v, map);
  }
};
template <class T>
struct FieldValue<InlineDims<T>> : ListFieldValue<InlineDims<T>, T> {
  static void parse(FieldReader& reader, InlineDims<T>& list) {
    reader.expect("[");
    list = {};
    while (!reader.skip("]")) {
      if (!list.empty()) reader.expect(",");
      T v{};
      FieldValue<T>::parse(reader, v);
      list.push_back(v);
    }
  }
};
template <class T, size_t kCount>
struct FieldValue<std::array<T, kCount>> : ListFieldValue<std::array<T, kCount>, T> {
  static void parse(FieldReader& reader, std::array<T, kCount>& list) {
    for (size_t i = 0; i < kCount; ++i) {
      reader.expect(i == 0 ? "[" : ",");
      FieldValue<T>::parse(reader, list[i]);
    }
    reader.expect("]");
  }
};

// A pointer to something alive: equal addresses are equal, and text has no use for it.
template <class T>
struct FieldValue<T*> : PlainFieldValue {
  static constexpr bool kIsHandle = true;
  static void print(T* v, std::string& out) { out += v == nullptr ? "null" : "<handle>"; }
  [[noreturn]] static void parse(FieldReader& reader, T*&) { reader.refuse("attrs without a handle on something alive, which text cannot hold,"); }
  static uint64_t hash(T* v) { return reinterpret_cast<uintptr_t>(v); }
};

template <HasFields T>
struct FieldValue<T> : PlainFieldValue {
  static constexpr const AttrsType* nested() { return &attrs_type<T>; }
  static void print(const T& v, std::string& out) { print_fields(attrs_type<T>, &v, out); }
  static void parse(FieldReader& reader, T& v) { parse_fields(attrs_type<T>, reader, &v); }
  static uint64_t hash(const T& v) { return hash_fields(attrs_type<T>, &v, false); }
  static bool equal(const T& a, const T& b) { return equal_fields(attrs_type<T>, &a, &b); }
};

}  // namespace tutti
