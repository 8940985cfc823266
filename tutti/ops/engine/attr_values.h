// Operations on the members of attrs, by their type: the functions behind each type and how types name theirs.
// The functions of numbers, sizes and lists are compiled once, in attr_values.cpp. See attr_fields.h.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/core/symint.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {

class Scalar;
enum class DType : uint8_t;
template <class T>
class InlineDims;
struct AttrsType;

// Reads what FieldType::print() wrote. UsageError naming the op (if one is given), the field, what was expected, what
// stands there and where.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text, std::string_view op = "") : text_(text), op_(op) {}
  // Whether `word` comes next; it is then passed.
  bool skip(std::string_view word);
  void expect(std::string_view word);
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max());
  double real();
  // Up to the next of ",]})" and spaces.
  std::string_view word();
  std::string quoted();
  // Which of `count` words comes next; errors show what follows a word behind a space as well.
  size_t one_of(size_t count, FunctionRef<std::string(size_t)> word);
  void at_end();
  [[noreturn]] void refuse(const std::string& expected) const;

  std::vector<std::string_view> path;  // the field that errors name, below those of nested structs

 private:
  std::string_view text_, op_;
  size_t at_ = 0;
};

// The functions of a type; an array and a nested struct have none, but those of their parts.
struct FieldType {
  void (*print)(const void* value, std::string& out) = nullptr;
  void (*parse)(FieldReader& reader, void* value) = nullptr;
  uint64_t (*hash)(const void* value) = nullptr;
  bool (*equal)(const void* a, const void* b) = nullptr;
  // Puts map(size) in the place of each symbolic size; null where the type holds none.
  void (*map_sizes)(void* value, FunctionRef<SymInt(SymInt)> map) = nullptr;
  const FieldType* element = nullptr;  // of an array with `count` elements, `stride` bytes apart
  size_t count = 0, stride = 0;
  const AttrsType* nested = nullptr;
  bool is_enum = false;  // parse() accepts a few values only
};

// The hash of a sequence whose hash is `h` and then `v`. An odd constant is added first, so that small numbers do not
// cancel each other.
inline uint64_t mix_hash(uint64_t h, uint64_t v) {
  h = ((h + 0x9E3779B97F4A7C15ull) ^ v) * 0xD6E8FEB86659FD93ull;
  return h ^ h >> 32;
}

template <class T>
concept HasFields = requires { T::fields(); };

// How members of type T are treated. Rooms that have types of their own in attrs specialize it, deriving from
// PlainFieldValue and defining print(), parse(), hash() and equal() for a T. Those of enums are in attr_enums.h.
template <class T>
struct FieldValue;

struct PlainFieldValue {
  static constexpr bool kIsHandle = false, kHoldsSizes = false, kIsEnum = false;
};

namespace field_types {
extern const FieldType kBool, kDType, kDouble, kSymInt, kScalar, kDims, kShape, kHandle;
// Integers and enums of 1, 2, 4 and 8 bytes: the unsigned ones, then the signed ones.
extern const FieldType kIntegers[8];

template <class T>
constexpr const FieldType* integer() {
  return &kIntegers[std::bit_width(sizeof(T)) - 1 + (std::is_signed_v<T> ? 4 : 0)];
}

// The functions of a type that specializes FieldValue with them.
template <class T>
inline constexpr FieldType kOf = {
    .print = [](const void* v, std::string& out) { FieldValue<T>::print(*static_cast<const T*>(v), out); },
    .parse = [](FieldReader& reader, void* v) { FieldValue<T>::parse(reader, *static_cast<T*>(v)); },
    .hash = [](const void* v) { return FieldValue<T>::hash(*static_cast<const T*>(v)); },
    .equal = [](const void* a,
                const void* b) { return FieldValue<T>::equal(*static_cast<const T*>(a), *static_cast<const T*>(b)); },
    .is_enum = FieldValue<T>::kIsEnum,
};
}  // namespace field_types

// The functions of T; equal types have equal addresses.
template <class T>
constexpr const FieldType* field_type() {
  if constexpr (requires { FieldValue<T>::kType; }) return FieldValue<T>::kType;
  else return &field_types::kOf<T>;
}

template <const FieldType& kFunctions>
struct BuiltInFieldValue : PlainFieldValue {
  static constexpr const FieldType* kType = &kFunctions;
};
template <const FieldType& kFunctions>
struct SizeFieldValue : BuiltInFieldValue<kFunctions> {
  static constexpr bool kHoldsSizes = true;
};

template <>
struct FieldValue<bool> : BuiltInFieldValue<field_types::kBool> {};
template <>
struct FieldValue<DType> : BuiltInFieldValue<field_types::kDType> {};
template <std::integral T>
struct FieldValue<T> : PlainFieldValue {
  static constexpr const FieldType* kType = field_types::integer<T>();
};
template <>
struct FieldValue<double> : BuiltInFieldValue<field_types::kDouble> {  // by bits: -0.0 is not 0.0, and a NaN is itself
  static void print(double v, std::string& out);
  static bool equal(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
};
template <>
struct FieldValue<SymInt> : SizeFieldValue<field_types::kSymInt> {};
template <>
struct FieldValue<Scalar> : SizeFieldValue<field_types::kScalar> {};
// Lists compare the elements that they have.
template <>
struct FieldValue<InlineDims<int64_t>> : BuiltInFieldValue<field_types::kDims> {};
template <>
struct FieldValue<InlineDims<SymInt>> : SizeFieldValue<field_types::kShape> {};
// A pointer to something alive: equal addresses are equal, and text has no use for it.
template <class T>
struct FieldValue<T*> : BuiltInFieldValue<field_types::kHandle> {
  static constexpr bool kIsHandle = true;
};
template <class T, size_t kCount>
struct FieldValue<std::array<T, kCount>> : PlainFieldValue {
  static constexpr bool kHoldsSizes = FieldValue<T>::kHoldsSizes;
  static constexpr FieldType kArray = {.element = field_type<T>(), .count = kCount, .stride = sizeof(T)};
  static constexpr const FieldType* kType = &kArray;
};

}  // namespace tutti
