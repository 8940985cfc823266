#include "tutti/ops/engine/row_ops.h"

#include <algorithm>

#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/reshape.h"

namespace tutti::rows {

bool contains(const Dims& dims, int64_t dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }

Shape reduced_sizes(const Shape& sizes, const Dims& dims, bool keepdim) {
  Shape result;
  for (int d = 0; d < sizes.ndim(); ++d) {
    if (!contains(dims, d)) result.push_back(sizes[static_cast<size_t>(d)]);
    else if (keepdim) result.push_back(1);
  }
  return result;
}

SymInt row_length(const Shape& sizes, const Dims& dims) {
  SymInt n = 1;
  for (const int64_t d : dims) n *= sizes[static_cast<size_t>(d)];
  return n;
}

void infer_reduction(const OpCall& call, OutputMetas& out) {
  const ReduceAttrs& a = reduce_attrs(call);
  out.add(a.dtype, reduced_sizes(call[0].sizes(), a.dims, a.keepdim));
}

Dims reduce_dims(const OpCall& call) { return reduce_attrs(call).dims; }
int64_t reduce_leaf(const OpCall& call) { return reduce_attrs(call).leaf; }

Cost reduce_cost(const OpCall& call) {
  OutputMetas metas;
  call.op.infer(call, metas);
  const double n = static_cast<double>(call[0].numel());
  const double results = static_cast<double>(numel_of(concrete(metas.meta[0].sizes)));
  return {
      .flops = n,
      .bytes = static_cast<double>(call[0].nbytes()) + results * static_cast<double>(itemsize(metas.meta[0].dtype))};
}

void for_each_row(const Tensor& x, const Dims& dims,
                  const std::function<void(int64_t, const std::vector<int64_t>&)>& visit) {
  Extents kept, reduced, kept_strides, reduced_strides;
  for (int d = 0; d < x.ndim(); ++d) {
    const size_t at = static_cast<size_t>(d);
    (contains(dims, d) ? reduced : kept).push_back(x.extents()[at]);
    (contains(dims, d) ? reduced_strides : kept_strides).push_back(x.strides()[at]);
  }
  const auto dot = [](const Extents& at, const Extents& strides) {
    int64_t offset = 0;
    for (size_t i = 0; i < at.size(); ++i) offset += at[i] * strides[i];
    return offset;
  };
  std::vector<int64_t> inner;
  facets::for_each_index(reduced, [&](const Extents& at) { inner.push_back(dot(at, reduced_strides)); });
  std::vector<int64_t> offsets(inner.size());
  int64_t row = 0;
  facets::for_each_index(kept, [&](const Extents& at) {
    const int64_t base = dot(at, kept_strides);
    std::transform(inner.begin(), inner.end(), offsets.begin(), [base](int64_t o) { return base + o; });
    visit(row++, offsets);
  });
}

Tensor keep_dims(const Tensor& t, const Shape& input_sizes, const Dims& dims) {
  return t.ndim() == input_sizes.ndim() ? t : reshape(t, reduced_sizes(input_sizes, dims, true));
}

namespace {

std::string result_letters(const OpCall& call) {
  const ReduceAttrs& a = reduce_attrs(call);
  std::string letters;
  for (int d = 0; d < call[0].ndim(); ++d) {
    if (!contains(a.dims, d)) letters += static_cast<char>('a' + d);
    else if (a.keepdim) letters += '1';
  }
  return letters;
}

}  // namespace

std::string tree_classes(const Shape& sizes, const Dims& dims, int64_t leaf) {
  if (dims.empty()) return "";
  const char first = static_cast<char>('a' + dims[0]);
  std::string others;
  int64_t inner = 1;
  for (size_t i = 1; i < dims.size(); ++i) {
    others += static_cast<char>('a' + dims[i]);
    inner *= sizes[static_cast<size_t>(dims[i])].guard_int();
  }
  if (dims.size() == 1) return fmt::format("tree:{}{{{}}}", leaf, first);
  // The elements of a row lie one after another: a cut of the first dim is one of the row, and a border of its tree
  // where it is even.
  return fmt::format("tree:{0}{{{1}}} even{{{1}}} sum{{{2}}}", std::max<int64_t>(leaf / std::max<int64_t>(inner, 1), 1),
                     first, others);
}

std::string reduction_sharding(const OpCall& call, const char* kind, const char* partial) {
  std::string reduced;
  for (const int64_t d : reduce_attrs(call).dims) reduced += static_cast<char>('a' + d);
  const bool is_tree =
      std::string_view(kind) == "sum" && is_floating(call[0].dtype()) && is_floating(reduce_attrs(call).dtype);
  const std::string classes =
      reduced.empty() ? ""
      : is_tree       ? tree_classes(call[0].sizes(), reduce_attrs(call).dims,
                               reduce_leaf(call) == 0 ? codegen::KernelCall{}.leaf : reduce_leaf(call))
                      : fmt::format("{}{{{}}}", kind, reduced);
  // Integers add and multiply without rounding: in whatever order, the bits are the same.
  const bool exact = !is_floating(reduce_attrs(call).dtype);
  return fmt::format("x[{}] -> y[{}] | {} | {} | {}", facets::dim_letters(call[0].ndim()), result_letters(call),
                     classes, partial, exact ? classes : "");
}

std::string whole_row_sharding(const OpCall& call) {
  uint32_t whole = 0;
  for (const int64_t d : reduce_attrs(call).dims) whole |= 1u << d;
  return fmt::format("#x[{}] -> y[{}] | |", facets::dim_letters(call[0].ndim(), whole), result_letters(call));
}

std::vector<Sample> reduction_samples(std::span<const DType> dtypes, double lo, double hi,
                                      const std::function<void(const Tensor&, ReduceAttrs&)>& fill,
                                      bool with_empty_rows) {
  std::vector<Sample> samples;
  const auto add = [&](std::string name, const Tensor& x, const Dims& dims, bool keepdim, int64_t leaf = 0) {
    ReduceAttrs attrs{.dims = dims, .keepdim = keepdim, .leaf = leaf};
    fill(x, attrs);
    samples.push_back({std::move(name), {x}, Attrs::of(attrs)});
  };
  for (const DType dtype : dtypes)
    add(fmt::format("rows_{}", name_of(dtype)), facets::sample_tensor(3, {5, 37}, dtype, lo, hi), {1}, false);
  const DType first = dtypes[0];
  const auto make = [&](const Extents& sizes) { return facets::sample_tensor(4, sizes, first, lo, hi); };
  add("columns", make({23, 19}), {0}, false);
  add("columns_keepdim", make({23, 3}), {0}, true);
  add("all", make({3, 5, 7}), {0, 1, 2}, false);
  add("middle_keepdim", make({3, 11, 4}), {1}, true);
  add("outer_and_inner", make({3, 4, 5}), {0, 2}, false);
  add("strided", facets::strided_copy(make({4, 33})), {1}, false);
  add("transposed", make({6, 4, 5}).view_as({5, 4, 6}, {1, 5, 20}, 0), {0, 2}, false);
  add("two_leaves", make({2, 1100}), {1}, false);
  add("small_leaf", make({3, 100}), {1}, false, 8);
  add("one_element", make({1, 1}), {1}, false);
  add("scalar", make({}), {}, false);
  add("no_rows", make({0, 4}), {1}, false);
  add("no_rows_of_dims_apart", make({0, 2, 3, 4}), {1, 3}, false);
  if (with_empty_rows) add("empty_rows", make({3, 0}), {1}, false);
  return samples;
}

}  // namespace tutti::rows
