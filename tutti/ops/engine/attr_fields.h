// Fields of attrs: an attrs struct lists its members once, and printing, hashing, comparison, symbolic sizes, random keys and cache
// keys read that list.
//
//   struct PadAttrs {
//     int64_t dim, before, after;
//     double value;
//     static constexpr auto fields() {
//       return field_list(field::number<&PadAttrs::dim>("dim"), field::number<&PadAttrs::before>("before"),
//                         field::number<&PadAttrs::after>("after"), field::number<&PadAttrs::value>("value"));
//     }
//   };
//
// A list that leaves out a member, or names one twice, does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "tutti/core/symint.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {

enum class FieldKind : uint8_t {
  rule,          // decides which code runs: calls with different values never share a kernel (see Recipe::variant)
  number,        // a number, dim or flag that code reads or that shapes the result; kernels do not depend on it
  size,          // may be symbolic while sizes are traced: SymInt, Shape, Scalar
  output_dtype,  // the dtype of a result
  random_key,    // a RandomKey, which calls of a compiled function have anew
  group,         // a group of ranks, by name
  nested,        // a struct that lists fields of its own
  handle,        // a pointer to something alive: it cannot be written as text
};

struct AttrsType;
class FieldReader;

// What is done with a member, by its type.
struct FieldType {
  void (*print)(const void* value, std::string& out);
  void (*parse)(FieldReader& reader, void* value);
  uint64_t (*hash)(const void* value);
  bool (*equal)(const void* a, const void* b);
  // Puts map(size) in the place of each symbolic size; null where the type holds none.
  void (*map_sizes)(void* value, FunctionRef<SymInt(SymInt)> map);
  const AttrsType* nested = nullptr;
};

struct FieldRecord {
  const char* name;
  FieldKind kind;
  const FieldType* type;
  void* (*at)(void* attrs);  // the member of a struct
  const void* in(const void* attrs) const { return at(const_cast<void*>(attrs)); }
};

// All that is known about a struct of attrs.
struct AttrsType {
  std::string_view name;
  size_t size;
  std::span<const FieldRecord> fields;
  bool has_rules;  // whether one of the fields, of nested structs as well, is a rule or an output dtype
};

template <class T>
concept HasFields = requires { T::fields(); };

// How members of type T are treated. Rooms that have types of their own in attrs specialize it, with the functions of
// attr_values.h.
template <class T>
struct FieldValue;

template <auto kMember, FieldKind kKind>
struct Field {
  const char* name;
};

namespace attrs_detail {

template <class T>
struct MemberOf;
template <class Struct, class Member>
struct MemberOf<Member Struct::*> {
  using Type = Member;
  using Owner = Struct;
};
template <auto kMember>
using TypeOf = typename MemberOf<decltype(kMember)>::Type;

struct AnyMember {
  template <class T>
  constexpr operator T() const;  // NOLINT: only named in unevaluated operands
};
template <class T, size_t... kIndex>
constexpr bool takes(std::index_sequence<kIndex...>) {
  return requires { T{(static_cast<void>(kIndex), AnyMember{})...}; };
}
// How many members the aggregate T has.
template <class T, size_t kCount = 0>
constexpr size_t count_members() {
  if constexpr (takes<T>(std::make_index_sequence<kCount + 1>{})) return count_members<T, kCount + 1>();
  else return kCount;
}

template <auto kA, auto kB>
constexpr bool is_same_member() {
  if constexpr (std::is_same_v<decltype(kA), decltype(kB)>) return kA == kB;
  else return false;
}
template <auto kFirst, auto... kRest>
constexpr bool are_distinct() {
  if constexpr (sizeof...(kRest) == 0) return true;
  else return !(is_same_member<kFirst, kRest>() || ...) && are_distinct<kRest...>();
}

template <class T>
inline constexpr FieldType field_type = {
    .print = [](const void* v, std::string& out) { FieldValue<T>::print(*static_cast<const T*>(v), out); },
    .parse = [](FieldReader& reader, void* v) { FieldValue<T>::parse(reader, *static_cast<T*>(v)); },
    .hash = [](const void* v) { return FieldValue<T>::hash(*static_cast<const T*>(v)); },
    .equal = [](const void* a, const void* b) { return FieldValue<T>::equal(*static_cast<const T*>(a), *static_cast<const T*>(b)); },
    .map_sizes = FieldValue<T>::kHoldsSizes ? +[](void* v, FunctionRef<SymInt(SymInt)> map) { FieldValue<T>::map_sizes(*static_cast<T*>(v), map); } : nullptr,
    .nested = FieldValue<T>::nested(),
};

template <auto kMember>
void* member_at(void* attrs) {
  return &(static_cast<typename MemberOf<decltype(kMember)>::Owner*>(attrs)->*kMember);
}

template <auto kMember, FieldKind kKind>
constexpr FieldRecord record_of(Field<kMember, kKind> field) {
  return {field.name, kKind, &field_type<TypeOf<kMember>>, &member_at<kMember>};
}

template <class T, auto... kMembers, FieldKind... kKinds>
constexpr auto records_of(const std::tuple<Field<kMembers, kKinds>...>& list) {
  static_assert(count_members<T>() == sizeof...(kMembers), "fields() must list every member of the attrs");
  if constexpr (sizeof...(kMembers) > 0) static_assert(are_distinct<kMembers...>(), "fields() lists a member of the attrs twice");
  return std::apply([](auto... field) { return std::array<FieldRecord, sizeof...(kMembers)>{record_of(field)...}; }, list);
}

// The name of T, as the compiler writes it, without namespaces.
template <class T>
constexpr std::string_view name_of_type() {
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.find("T = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}

constexpr bool has_rules(std::span<const FieldRecord> fields) {
  for (const FieldRecord& f : fields) {
    if (f.kind == FieldKind::rule || f.kind == FieldKind::output_dtype) return true;
    if (f.kind == FieldKind::nested && f.type->nested->has_rules) return true;
  }
  return false;
}

template <class T>
inline constexpr auto records = records_of<T>(T::fields());

}  // namespace attrs_detail

// The one record of T; equal types have equal addresses.
template <HasFields T>
inline constexpr AttrsType attrs_type = {attrs_detail::name_of_type<T>(), sizeof(T), attrs_detail::records<T>, attrs_detail::has_rules(attrs_detail::records<T>)};

template <auto... kMembers, FieldKind... kKinds>
constexpr auto field_list(Field<kMembers, kKinds>... fields) {
  return std::tuple(fields...);
}

namespace field {

template <auto kMember, FieldKind kKind>
constexpr Field<kMember, kKind> of_kind(const char* name) {
  using T = attrs_detail::TypeOf<kMember>;
  static_assert(kKind != FieldKind::size || FieldValue<T>::kHoldsSizes, "a size is a SymInt, a Shape or a Scalar");
  static_assert(kKind == FieldKind::size || !FieldValue<T>::kHoldsSizes, "what may be symbolic is a size");
  static_assert((kKind == FieldKind::handle) == FieldValue<T>::kIsHandle, "pointers are handles, and nothing else is");
  static_assert(kKind != FieldKind::nested || HasFields<T>, "what is nested lists fields of its own");
  return {name};
}
template <auto kMember>
constexpr auto rule(const char* name) { return of_kind<kMember, FieldKind::rule>(name); }
template <auto kMember>
constexpr auto number(const char* name) { return of_kind<kMember, FieldKind::number>(name); }
template <auto kMember>
constexpr auto size(const char* name) { return of_kind<kMember, FieldKind::size>(name); }
template <auto kMember>
constexpr auto output_dtype(const char* name) { return of_kind<kMember, FieldKind::output_dtype>(name); }
template <auto kMember>
constexpr auto random_key(const char* name) { return of_kind<kMember, FieldKind::random_key>(name); }
template <auto kMember>
constexpr auto group(const char* name) { return of_kind<kMember, FieldKind::group>(name); }
template <auto kMember>
constexpr auto nested(const char* name) { return of_kind<kMember, FieldKind::nested>(name); }
template <auto kMember>
constexpr auto handle(const char* name) { return of_kind<kMember, FieldKind::handle>(name); }

}  // namespace field
}  // namespace tutti
