#include "tutti/graph/symbols.h"

#include <algorithm>

namespace tutti::graph {
namespace {

constexpr size_t kMaxSymbols = 64;

int64_t size_in(const Leaves& arguments, const DynamicDim& d) {
  return arguments.tensors[static_cast<size_t>(d.tensor)].extents()[static_cast<size_t>(d.dim)];
}

bool fits(const DynamicDim& d, int64_t size) { return size >= d.min && size <= d.max && size % d.multiple_of == 0; }

}  // namespace

Symbols Symbols::declared(std::span<const DynamicDim> dims, const std::string& function, const Leaves& arguments) {
  Symbols made;
  const int tensors = static_cast<int>(arguments.tensors.size());
  for (DynamicDim d : dims) {
    TUTTI_CHECK(d.tensor >= 0 && d.tensor < tensors, "'{}': dynamic() names tensor {}, the arguments hold {} (counted from 0)", function, d.tensor, tensors);
    const Tensor& t = arguments.tensors[static_cast<size_t>(d.tensor)];
    TUTTI_CHECK(d.dim >= -t.ndim() && d.dim < t.ndim(), "'{}': dynamic() names dim {} of tensor {}, which is {}", function, d.dim, d.tensor, describe(t));
    if (d.dim < 0) d.dim += t.ndim();
    TUTTI_CHECK(d.min >= 0 && d.min <= d.max && d.multiple_of >= 1, "'{}': dynamic() for dim {} of tensor {}: sizes from {} to {} in multiples of {}; "
                "expected 0 <= min <= max and a multiple of at least 1", function, d.dim, d.tensor, d.min, d.max, d.multiple_of);
    TUTTI_CHECK(fits(d, size_in(arguments, d)), "'{}': dim {} of tensor {} is {}, declared as dynamic from {} to {}{}", function, d.dim, d.tensor,
                size_in(arguments, d), d.min, d.max, d.multiple_of > 1 ? fmt::format(" in multiples of {}", d.multiple_of) : "");
    if (made.index_of(static_cast<size_t>(d.tensor), static_cast<size_t>(d.dim)) < 0) made.dims_.push_back(d);
  }
  return made;
}

void Symbols::add_varying(const Guards& before, const Leaves& arguments, std::span<const std::pair<int, int>> except) {
  if (before.tensors.size() != arguments.tensors.size()) return;
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    const Extents &then = before.tensors[i].sizes, &now = arguments.tensors[i].extents();
    if (then.ndim() != now.ndim()) return;
    for (size_t d = 0; d < then.size(); ++d) {
      const std::pair<int, int> at{static_cast<int>(i), static_cast<int>(d)};
      if (then[d] == now[d] || then[d] < 2 || now[d] < 2 || index_of(i, d) >= 0 || dims_.size() == kMaxSymbols) continue;
      if (std::find(except.begin(), except.end(), at) == except.end()) dims_.push_back(dynamic(at.first, at.second));
    }
  }
}

int Symbols::index_of(size_t tensor, size_t dim) const {
  for (size_t s = 0; s < dims_.size(); ++s) {
    if (dims_[s].tensor == static_cast<int>(tensor) && dims_[s].dim == static_cast<int>(dim)) return static_cast<int>(s);
  }
  return -1;
}

bool Symbols::in_range(const Leaves& arguments) const {
  for (const DynamicDim& d : dims_) {
    if (!fits(d, size_in(arguments, d))) return false;
  }
  return true;
}

std::vector<int64_t> Symbols::values_in(const Leaves& arguments) const {
  std::vector<int64_t> values;
  for (const DynamicDim& d : dims_) values.push_back(size_in(arguments, d));
  return values;
}

std::vector<Shape> Symbols::sizes_of(const Leaves& arguments, SymGraph& graph) const {
  std::vector<Shape> sizes;
  for (const Tensor& t : arguments.tensors) sizes.push_back(t.sizes());
  for (size_t s = 0; s < dims_.size(); ++s) {
    sizes[static_cast<size_t>(dims_[s].tensor)][static_cast<size_t>(dims_[s].dim)] = graph.symbol(fmt::format("s{}", s), size_in(arguments, dims_[s]));
  }
  return sizes;
}

std::string Symbols::to_string() const {
  std::string text;
  for (size_t s = 0; s < dims_.size(); ++s) {
    const DynamicDim& d = dims_[s];
    text += fmt::format("  s{} = dim {} of tensor {}, from {}", s, d.dim, d.tensor, d.min);
    if (d.max != std::numeric_limits<int64_t>::max()) text += fmt::format(" to {}", d.max);
    if (d.multiple_of > 1) text += fmt::format(" in multiples of {}", d.multiple_of);
    text += "\n";
  }
  return text;
}

}  // namespace tutti::graph
