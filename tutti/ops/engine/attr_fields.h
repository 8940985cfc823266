// Fields of attrs: an attrs struct lists its members once, and printing, hashing, comparison, symbolic sizes, random
// keys and cache keys read that list.
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
// A list that leaves out a member, or names one twice, does not compile. The list becomes a table of plain records,
// which functions that are compiled once walk: each op file would compile its own otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tutti/ops/engine/attr_values.h"

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

struct FieldRecord {
  const char* name;
  FieldKind kind;
  const FieldType* type;
  void* (*at)(void* attrs);  // the member of a struct
  const char* member;  // the same as text: sanitizers do not let constant expressions compare addresses of functions
  const void* in(const void* attrs) const { return at(const_cast<void*>(attrs)); }
};

// All that is known about a struct of attrs.
struct AttrsType {
  const char* signature;  // of a function with the type as its argument, from which name() is taken
  size_t size;
  std::span<const FieldRecord> fields;
  bool has_rules;  // whether one of the fields, of nested structs as well, is a rule or an output dtype

  std::string_view name() const;  // without namespaces
};

// The fields that a hash or a comparison reads.
enum class HashedFields : uint8_t {
  all,
  rules,   // rules and output dtypes: what the code of a kernel depends on
  layout,  // all but random keys and the values of floating numbers and scalars, which no sharding rule reads unless
           // its op says so (OpDef::sharding_reads_numbers). The kind of a scalar counts, because the dtype of a result
           // follows from it.
};
uint64_t hash_fields(const AttrsType& type, const void* attrs, HashedFields which);
bool equal_fields(const AttrsType& type, const void* a, const void* b, HashedFields which = HashedFields::all);

namespace attrs_detail {

template <class T>
struct MemberOf;
template <class Struct, class Member>
struct MemberOf<Member Struct::*> {
  using Type = Member;
  using Owner = Struct;
};

struct AnyMember {
  template <class T>
  constexpr operator T() const;  // NOLINT: only named in unevaluated operands
};
// Whether the aggregate T has as many members as there are indices, or more.
template <class T, size_t... kIndex>
constexpr bool has_members(std::index_sequence<kIndex...>) {
  return requires { T{(static_cast<void>(kIndex), AnyMember{})...}; };
}

template <auto kMember>
constexpr const char* member_name() {
  return __PRETTY_FUNCTION__;
}

template <auto kMember>
void* member_at(void* attrs) {
  return &(static_cast<typename MemberOf<decltype(kMember)>::Owner*>(attrs)->*kMember);
}

constexpr bool are_distinct(std::span<const FieldRecord> fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (std::string_view(fields[i].member) == fields[k].member) return false;
    }
  }
  return true;
}

constexpr bool has_rules(std::span<const FieldRecord> fields) {
  for (const FieldRecord& f : fields) {
    if (f.kind == FieldKind::rule || f.kind == FieldKind::output_dtype) return true;
    if (f.kind == FieldKind::nested && f.type->nested->has_rules) return true;
  }
  return false;
}

template <class T>
constexpr auto checked_fields() {
  constexpr auto list = T::fields();
  static_assert(!has_members<T>(std::make_index_sequence<list.size() + 1>{}),
                "fields() must list every member of the attrs");
  static_assert(are_distinct(list), "fields() lists a member of the attrs twice");
  return list;
}
template <class T>
inline constexpr auto records = checked_fields<T>();

template <class T>
constexpr const char* signature() {
  return __PRETTY_FUNCTION__;
}

}  // namespace attrs_detail

// The one record of T; equal types have equal addresses.
template <HasFields T>
inline constexpr AttrsType attrs_type = {attrs_detail::signature<T>(), sizeof(T), attrs_detail::records<T>,
                                         attrs_detail::has_rules(attrs_detail::records<T>)};

template <HasFields T>
struct FieldValue<T> : PlainFieldValue {
  static constexpr FieldType kNested = {.nested = &attrs_type<T>};
  static constexpr const FieldType* kType = &kNested;
};

template <class... Records>
constexpr std::array<FieldRecord, sizeof...(Records)> field_list(Records... records) {
  return {records...};
}

namespace field {

template <auto kMember, FieldKind kKind>
constexpr FieldRecord of_kind(const char* name) {
  using T = typename attrs_detail::MemberOf<decltype(kMember)>::Type;
  static_assert(kKind != FieldKind::size || FieldValue<T>::kHoldsSizes, "a size is a SymInt, a Shape or a Scalar");
  static_assert(kKind == FieldKind::size || !FieldValue<T>::kHoldsSizes, "what may be symbolic is a size");
  static_assert((kKind == FieldKind::handle) == FieldValue<T>::kIsHandle, "pointers are handles, and nothing else is");
  static_assert(kKind != FieldKind::nested || HasFields<T>, "what is nested lists fields of its own");
  return {name, kKind, field_type<T>(), &attrs_detail::member_at<kMember>, attrs_detail::member_name<kMember>()};
}
template <auto kMember>
constexpr FieldRecord rule(const char* name) {
  return of_kind<kMember, FieldKind::rule>(name);
}
template <auto kMember>
constexpr FieldRecord number(const char* name) {
  return of_kind<kMember, FieldKind::number>(name);
}
template <auto kMember>
constexpr FieldRecord size(const char* name) {
  return of_kind<kMember, FieldKind::size>(name);
}
template <auto kMember>
constexpr FieldRecord output_dtype(const char* name) {
  return of_kind<kMember, FieldKind::output_dtype>(name);
}
template <auto kMember>
constexpr FieldRecord random_key(const char* name) {
  return of_kind<kMember, FieldKind::random_key>(name);
}
template <auto kMember>
constexpr FieldRecord group(const char* name) {
  return of_kind<kMember, FieldKind::group>(name);
}
template <auto kMember>
constexpr FieldRecord nested(const char* name) {
  return of_kind<kMember, FieldKind::nested>(name);
}
template <auto kMember>
constexpr FieldRecord handle(const char* name) {
  return of_kind<kMember, FieldKind::handle>(name);
}

}  // namespace field
}  // namespace tutti
