#include "tutti/core/shape.h"

#include <algorithm>
#include <ostream>

#include "tutti/core/number.h"

namespace tutti {
namespace {

template <class T>
std::string list_to_string(const InlineDims<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", values[i]);
  return text + "]";
}

}  // namespace

std::string to_string(const Shape& shape) { return list_to_string(shape); }
std::string to_string(const Extents& extents) { return list_to_string(extents); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }
std::ostream& operator<<(std::ostream& out, const Extents& extents) { return out << to_string(extents); }

Extents concrete(const Shape& shape) {
  Extents result;
  for (SymInt s : shape) result.push_back(s.guard_int());
  return result;
}

Shape to_shape(const Extents& extents) {
  Shape result;
  for (int64_t e : extents) result.push_back(e);
  return result;
}

int64_t numel_of(const Extents& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n = checked_mul(n, s);
  return n;
}

SymInt numel_of(const Shape& sizes) {
  SymInt n = 1;
  for (SymInt s : sizes) n *= s;
  return n;
}

Extents contiguous_strides(const Extents& sizes) {
  Extents strides(sizes.size(), 1);
  for (int d = sizes.ndim() - 2; d >= 0; --d)
    strides[d] = checked_mul(strides[d + 1], std::max<int64_t>(sizes[d + 1], 1));
  return strides;
}

int normalize_dim(int64_t dim, int ndim, const char* where) {
  TUTTI_CHECK(ndim > 0,
              "{}: dim {} of a tensor without dimensions, which is a single number; reshape it to [1] to have one",
              where, dim);
  TUTTI_CHECK(dim >= -ndim && dim < ndim, "{}: dim {} is out of range for a tensor of {} dimension{}; legal: {} to {}",
              where, dim, ndim, ndim == 1 ? "" : "s", -ndim, ndim - 1);
  return static_cast<int>(dim < 0 ? dim + ndim : dim);
}

Dims normalize_dims(const Dims& dims, int ndim, const char* where) {
  Dims result;
  if (dims.empty()) {
    for (int d = 0; d < ndim; ++d) result.push_back(d);
    return result;
  }
  for (int64_t d : dims) {
    const int n = normalize_dim(d, ndim, where);
    TUTTI_CHECK(std::find(result.begin(), result.end(), n) == result.end(), "{}: dim {} is named twice", where, d);
    result.push_back(n);
  }
  std::sort(result.begin(), result.end());
  return result;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* where) {
  const Shape& longer = a.ndim() >= b.ndim() ? a : b;
  const Shape& shorter = a.ndim() >= b.ndim() ? b : a;
  Shape result = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const SymInt x = longer[offset + i], y = shorter[i];
    if (x.raw() == y.raw() || y == 1) continue;
    if (x == 1) {
      result[offset + i] = y;
      continue;
    }
    TUTTI_CHECK(x == y, "{}: shapes {} and {} do not broadcast: size {} against {} at dim {} from the right", where, a,
                b, x, y, shorter.size() - i);
  }
  return result;
}

}  // namespace tutti

fmt::appender fmt::formatter<tutti::Shape>::format(const tutti::Shape& shape, fmt::format_context& context) const {
  const std::string text = tutti::to_string(shape);
  return std::copy(text.begin(), text.end(), context.out());
}

fmt::appender fmt::formatter<tutti::Extents>::format(const tutti::Extents& extents,
                                                     fmt::format_context& context) const {
  const std::string text = tutti::to_string(extents);
  return std::copy(text.begin(), text.end(), context.out());
}
