#include "tutti/graph/symbols.h"

#include <algorithm>

#include "tutti/tensor/wrapper.h"

namespace tutti::graph {
namespace {

constexpr size_t kMaxSymbols = 64;
// Sizes 0 and 1 mean something to most ops and stay integers.
constexpr int64_t kSmallest = 2;

int64_t size_in(const Leaves& arguments, const DynamicDim& d) {
  if (d.tensor == Guards::kSizes) return arguments.sizes[static_cast<size_t>(d.dim)];
  return arguments.tensors[static_cast<size_t>(d.tensor)].extents()[static_cast<size_t>(d.dim)];
}

bool fits(const DynamicDim& d, int64_t size) { return size >= d.min && size <= d.max && size % d.multiple_of == 0; }

}  // namespace

std::string describe(const DynamicDim& d) {
  return d.tensor == Guards::kSizes ? fmt::format("size argument {}", d.dim)
                                    : fmt::format("dim {} of tensor {}", d.dim, d.tensor);
}

Symbols Symbols::declared(std::span<const DynamicDim> dims, const std::string& function, const Leaves& arguments) {
  Symbols made;
  const int tensors = static_cast<int>(arguments.tensors.size());
  for (DynamicDim d : dims) {
    if (d.tensor == Guards::kSizes) {
      TUTTI_CHECK(d.dim >= 0 && d.dim < static_cast<int>(arguments.sizes.size()),
                  "'{}': dynamic() names size argument {}, the arguments hold {} (counted from 0)", function, d.dim,
                  arguments.sizes.size());
    } else {
      TUTTI_CHECK(d.tensor >= 0 && d.tensor < tensors,
                  "'{}': dynamic() names tensor {}, the arguments hold {} (counted from 0)", function, d.tensor,
                  tensors);
      const Tensor& t = arguments.tensors[static_cast<size_t>(d.tensor)];
      TUTTI_CHECK(d.dim >= -t.ndim() && d.dim < t.ndim(), "'{}': dynamic() names dim {} of tensor {}, which is {}",
                  function, d.dim, d.tensor, describe(t));
      if (d.dim < 0) d.dim += t.ndim();
      TUTTI_CHECK(wrapper_of(t) == nullptr || wrapper_of(t)->has_whole(t, d.dim),
                  "'{}': dynamic() names dim {} of tensor {}, which is {}; sizes that ranks share are integers, and "
                  "each is compiled by itself",
                  function, d.dim, d.tensor, describe(t));
    }
    TUTTI_CHECK(d.min >= 0 && d.min <= d.max && d.multiple_of >= 1,
                "'{}': dynamic() for {}: sizes from {} to {} in multiples of {}; expected 0 <= min <= max "
                "and a multiple of at least 1",
                function, describe(d), d.min, d.max, d.multiple_of);
    TUTTI_CHECK(fits(d, size_in(arguments, d)), "'{}': {} is {}, declared as dynamic from {} to {}{}", function,
                describe(d), size_in(arguments, d), d.min, d.max,
                d.multiple_of > 1 ? fmt::format(" in multiples of {}", d.multiple_of) : "");
    if (size_in(arguments, d) >= kSmallest && made.index_of(d.tensor, d.dim) < 0) made.dims_.push_back(d);
  }
  made.num_declared_ = made.dims_.size();
  return made;
}

void Symbols::add_varying(const Guards& before, const Leaves& arguments, std::span<const std::pair<int, int>> except) {
  const auto add = [&](int tensor, int dim, int64_t then, int64_t now) {
    if (then == now || then < kSmallest || now < kSmallest || index_of(tensor, dim) >= 0 || dims_.size() >= kMaxSymbols)
      return;
    if (std::find(except.begin(), except.end(), std::pair{tensor, dim}) == except.end())
      dims_.push_back(dynamic(tensor, dim));
  };
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    const Tensor& t = arguments.tensors[i];
    const Extents &then = before.tensors[i].sizes, &now = t.extents();
    for (size_t d = 0; d < then.size(); ++d) {
      if (wrapper_of(t) == nullptr || wrapper_of(t)->has_whole(t, static_cast<int>(d)))
        add(static_cast<int>(i), static_cast<int>(d), then[d], now[d]);
    }
  }
  for (size_t i = 0; i < before.sizes.size(); ++i)
    add(Guards::kSizes, static_cast<int>(i), before.sizes[i], arguments.sizes[i]);
}

int Symbols::index_of(int tensor, int dim) const {
  for (size_t s = 0; s < dims_.size(); ++s) {
    if (dims_[s].tensor == tensor && dims_[s].dim == dim) return static_cast<int>(s);
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

Symbols::Sizes Symbols::sizes_of(const Leaves& arguments, SymGraph& graph) const {
  Sizes sizes;
  for (const Tensor& t : arguments.tensors) sizes.of_tensors.push_back(t.sizes());
  for (const int64_t size : arguments.sizes) sizes.alone.push_back(size);
  for (size_t s = 0; s < dims_.size(); ++s) {
    const auto dim = static_cast<size_t>(dims_[s].dim);
    SymInt& size = dims_[s].tensor == Guards::kSizes ? sizes.alone[dim]
                                                     : sizes.of_tensors[static_cast<size_t>(dims_[s].tensor)][dim];
    size = graph.symbol(fmt::format("s{}", s), size_in(arguments, dims_[s]));
  }
  return sizes;
}

std::string Symbols::to_string() const {
  std::string text;
  for (size_t s = 0; s < dims_.size(); ++s) {
    const DynamicDim& d = dims_[s];
    text += fmt::format("  s{} = {}, from {}", s, describe(d), d.min);
    if (d.max != std::numeric_limits<int64_t>::max()) text += fmt::format(" to {}", d.max);
    if (d.multiple_of > 1) text += fmt::format(" in multiples of {}", d.multiple_of);
    text += "\n";
  }
  return text;
}

}  // namespace tutti::graph
