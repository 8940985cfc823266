// Sizes and strides: lists of up to kMaxDims values, stored inline and trivially copyable.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>

#include "tutti/core/error.h"
#include "tutti/core/plain_formatter.h"
#include "tutti/core/symint.h"

namespace tutti {

inline constexpr int kMaxDims = 8;

// A list of at most kMaxDims values; adding more throws UsageError.
template <class T>
class InlineDims {
 public:
  constexpr InlineDims() = default;
  InlineDims(std::initializer_list<T> values) : InlineDims(std::span<const T>(values.begin(), values.size())) {}
  explicit InlineDims(std::span<const T> values) {
    for (const T& v : values) push_back(v);
  }
  InlineDims(size_t count, T value) {
    for (size_t i = 0; i < count; ++i) push_back(value);
  }

  int ndim() const { return count_; }
  size_t size() const { return static_cast<size_t>(count_); }
  bool empty() const { return count_ == 0; }
  T& operator[](size_t i) { return values_[i]; }
  const T& operator[](size_t i) const { return values_[i]; }
  T* begin() { return values_; }
  T* end() { return values_ + count_; }
  const T* begin() const { return values_; }
  const T* end() const { return values_ + count_; }
  const T& back() const { return values_[count_ - 1]; }
  T& back() { return values_[count_ - 1]; }
  operator std::span<const T>() const { return {values_, size()}; }  // NOLINT: a list is a span

  void push_back(T value) {
    TUTTI_CHECK(count_ < kMaxDims, "a tensor can have at most {} dimensions", kMaxDims);
    values_[count_++] = value;
  }
  void pop_back() { --count_; }
  void insert(int at, T value) {
    push_back(value);
    for (int i = count_ - 1; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = value;
  }
  void erase(int at) {
    for (int i = at; i + 1 < count_; ++i) values_[i] = values_[i + 1];
    --count_;
  }
  void clear() { count_ = 0; }

  friend bool operator==(const InlineDims& a, const InlineDims& b) {
    if (a.count_ != b.count_) return false;
    for (int i = 0; i < a.count_; ++i) {
      if (!(a.values_[i] == b.values_[i])) return false;
    }
    return true;
  }

 private:
  T values_[kMaxDims] = {};
  int32_t count_ = 0;
};

using Shape = InlineDims<SymInt>;     // sizes, possibly symbolic
using Extents = InlineDims<int64_t>;  // sizes or strides of a tensor with memory
using Dims = InlineDims<int64_t>;     // a list of dimension numbers

std::string to_string(const Shape& shape);      // "[2, 3]"
std::string to_string(const Extents& extents);  // "[2, 3]"
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Extents& extents);

// The sizes as integers. While tracing, a symbolic size takes its value in the traced call, which is recorded as a
// guard.
Extents concrete(const Shape& shape);
Shape to_shape(const Extents& extents);

// The product of the sizes. SymIntOverflow when it exceeds int64.
int64_t numel_of(const Extents& sizes);
SymInt numel_of(const Shape& sizes);
// Strides of a dense row-major tensor, in elements.
Extents contiguous_strides(const Extents& sizes);

// Maps `dim` in [-ndim, ndim) to a non-negative number. UsageError, whose message begins with `where`, when it is out
// of range.
int normalize_dim(int64_t dim, int ndim, const char* where);
// The dims as sorted, distinct, non-negative numbers; an empty list means all dims.
Dims normalize_dims(const Dims& dims, int ndim, const char* where);

// The shape that two operands broadcast to by NumPy's rule. UsageError, naming both shapes, when they do not broadcast.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* where);

}  // namespace tutti

// fmt/ranges.h would take a Shape and an Extents for ranges, and then have two formatters for them.
FMT_BEGIN_NAMESPACE
template <typename T, typename Char>
struct is_range;
template <>
struct is_range<tutti::Shape, char> : std::false_type {};
template <>
struct is_range<tutti::Extents, char> : std::false_type {};
FMT_END_NAMESPACE

template <>
struct fmt::formatter<tutti::Shape> : tutti::PlainFormatter {
  fmt::appender format(const tutti::Shape& shape, fmt::format_context& context) const;
};
template <>
struct fmt::formatter<tutti::Extents> : tutti::PlainFormatter {
  fmt::appender format(const tutti::Extents& extents, fmt::format_context& context) const;
};
