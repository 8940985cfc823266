// Attrs: the typed, trivially copyable options of one op call, carried without knowing their type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/ops/engine/attr_fields.h"

namespace tutti {

struct RandomKey;

#if defined(TUTTI_RUNTIME_ONLY) && !defined(TUTTI_WITHOUT_OPS)
// The runtime of packages has no samples, which say what attrs the calls of an op have: it finds their types by name.
// Null when no call in this program has attrs of that name.
const AttrsType* attrs_type_named(std::string_view name);
namespace attrs_detail {
bool enter(const AttrsType& type);
template <class T>
inline const bool is_entered = enter(attrs_type<T>);
}  // namespace attrs_detail
#endif

class Attrs {
 public:
  static constexpr size_t kCapacity = 256;

  Attrs() {}  // not defaulted: `Attrs{}` would clear all bytes at each call of an op
  template <class T>
  static Attrs of(const T& value) {
    static_assert(HasFields<T>, "attrs are a struct that lists its fields, see attr_fields.h");
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kCapacity && alignof(T) <= 8);
#if defined(TUTTI_RUNTIME_ONLY) && !defined(TUTTI_WITHOUT_OPS)
    static_cast<void>(&attrs_detail::is_entered<T>);
#endif
    Attrs a;
    std::memcpy(a.bytes_, &value, sizeof(T));
    a.type_ = &attrs_type<T>;
    a.size_ = sizeof(T);
    return a;
  }
  Attrs(const Attrs& other) : type_(other.type_), size_(other.size_) { std::memcpy(bytes_, other.bytes_, size_); }
  Attrs& operator=(const Attrs& other) {
    type_ = other.type_;
    size_ = other.size_;
    std::memmove(bytes_, other.bytes_, size_);
    return *this;
  }

  template <class T>
  const T& as() const {
    if (type_ != &attrs_type<T>) [[unlikely]]
      refuse(attrs_type<T>);
    return *reinterpret_cast<const T*>(bytes_);
  }
  bool empty() const { return type_ == nullptr; }
  const AttrsType* type() const { return type_; }  // null when empty
  std::string_view type_name() const;              // "none" when empty

  // "{dim: 1, keepdim: false}"; "" when empty.
  std::string to_string() const;
  // The attrs of `type` that to_string() wrote. UsageError naming `op` and the field where the text ends to fit, or
  // holds a handle.
  static Attrs from_text(const AttrsType& type, std::string_view text, std::string_view op = "");

  // Equal when they are of one type and all fields are equal. Elements behind the end of a list do not count.
  friend bool operator==(const Attrs& a, const Attrs& b);
  uint64_t hash() const;
  // The hash of rules and output dtypes only (see Recipe::variant); 0 when there are none.
  uint64_t hash_of_rules() const { return type_ == nullptr || !type_->has_rules ? 0 : rules_hash(); }
  // Whether rules and output dtypes are equal, in attrs of one type.
  bool has_rules_of(const Attrs& other) const {
    return type_ == other.type_ && (type_ == nullptr || !type_->has_rules || equal_in(other, HashedFields::rules));
  }

  // The hash of what a sharding rule may depend on (HashedFields::layout), and whether that is equal.
  uint64_t hash_of_layout() const;
  bool has_layout_of(const Attrs& other) const {
    return type_ == other.type_ && (type_ == nullptr || equal_in(other, HashedFields::layout));
  }
  // Sets the dtype of the results, in attrs that have one; returns whether they do.
  bool set_output_dtype(DType dtype);

  // Puts map(size) in the place of each size, and of each number that is a symbol.
  void map_sizes(FunctionRef<SymInt(SymInt)> map);
  // Calls visit(key) with each random key, which it may change.
  void visit_keys(FunctionRef<void(RandomKey&)> visit);

 private:
  uint64_t rules_hash() const;
  bool equal_in(const Attrs& other, HashedFields which) const;
  void refuse(const AttrsType& expected) const;  // throws InternalError, as these attrs are of another type

  alignas(8) std::byte bytes_[kCapacity];
  const AttrsType* type_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tutti
