#include "tutti/ops/slice.h"

#include <algorithm>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

// Elements start + k * step, k < length, of a dim with `size` elements.
struct SliceAttrs {
  int64_t dim;
  SymInt start, length;
  int64_t step;
  SymInt size;
  static constexpr auto fields() {
    return field_list(field::number<&SliceAttrs::dim>("dim"), field::size<&SliceAttrs::start>("start"),
                      field::size<&SliceAttrs::length>("length"), field::number<&SliceAttrs::step>("step"),
                      field::size<&SliceAttrs::size>("size"));
  }
};

const SliceAttrs& slice_of(const Attrs& attrs) { return attrs.as<SliceAttrs>(); }

Tensor slice_view(const Tensor& x, const SliceAttrs& a) {
  const size_t d = static_cast<size_t>(a.dim);
  Extents sizes = x.extents(), strides = x.strides();
  const int64_t offset = x.offset() + a.start.value() * strides[d];
  sizes[d] = a.length.value();
  strides[d] *= a.step;
  return x.view_as(sizes, strides, offset);
}

Shape with_size(const Shape& sizes, int64_t dim, SymInt size) {
  Shape result = sizes;
  result[static_cast<size_t>(dim)] = size;
  return result;
}

// The sliced dim is shardable only when the slice is all of it.
std::string slice_letters(const OpCall& call, char whole) {
  const SliceAttrs& a = slice_of(call.attrs);
  std::string letters = facets::dim_letters(call[0].ndim());
  if (!(a.step == 1 && a.length == a.size)) letters[static_cast<size_t>(a.dim)] = whole;
  return letters;
}

std::string slice_sharding(const OpCall& call) {
  return fmt::format("x[{}] -> y[{}] | | id", slice_letters(call, 'X'), slice_letters(call, 'Y'));
}

// ---- slice ----------------------------------------------------------------------------------------------------------

std::vector<Sample> slice_samples() {
  const auto attrs = [](int64_t dim, int64_t start, int64_t length, int64_t step, int64_t size) {
    return Attrs::of(SliceAttrs{dim, start, length, step, size});
  };
  return {
      {"middle", {facets::sample_tensor(1, {7, 3})}, attrs(0, 2, 4, 1, 7)},
      {"step", {facets::sample_tensor(2, {3, 11})}, attrs(1, 1, 4, 3, 11)},
      {"all", {facets::sample_tensor(3, {5, 2})}, attrs(0, 0, 5, 1, 5)},
      {"none", {facets::sample_tensor(4, {5, 2})}, attrs(0, 5, 0, 1, 5)},
      {"strided_bf16", {facets::strided_copy(facets::sample_tensor(5, {2, 6, 3}, DType::bf16))}, attrs(1, 0, 3, 2, 6)}};
}

const OpDef kSlice{
    .name = "slice",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const SliceAttrs& a = slice_of(call.attrs);
          out.add(call[0].dtype(), with_size(call[0].sizes(), a.dim, a.length));
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const SliceAttrs& a = slice_of(call.attrs);
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            Extents source = at;
            source[static_cast<size_t>(a.dim)] = a.start.value() + at[static_cast<size_t>(a.dim)] * a.step;
            facets::move_element(outputs[0], at, call[0], source);
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const SliceAttrs& a = slice_of(c.attrs);
                       grads[0] = slice_backward(c.grads[0], a.dim, a.size, a.start, a.step);
                     }},
    .view = [](const OpCall& call) { return slice_view(call[0], slice_of(call.attrs)); },
    .sharding = slice_sharding,
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          SliceAttrs a = slice_of(call.attrs);
          if (a.step == 1 && a.length == a.size) a.length = a.size = part.sizes[static_cast<size_t>(a.dim)];
          return Attrs::of(a);
        },
    .samples = slice_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- slice_backward -------------------------------------------------------------------------------------------------

std::vector<Sample> slice_backward_samples() {
  const auto attrs = [](int64_t dim, int64_t start, int64_t length, int64_t step, int64_t size) {
    return Attrs::of(SliceAttrs{dim, start, length, step, size});
  };
  return {{"middle", {facets::sample_tensor(1, {4, 3})}, attrs(0, 2, 4, 1, 7)},
          {"step_strided", {facets::strided_copy(facets::sample_tensor(2, {3, 4}))}, attrs(1, 1, 4, 3, 11)},
          {"all", {facets::sample_tensor(3, {5, 2})}, attrs(0, 0, 5, 1, 5)},
          {"none_bf16", {facets::sample_tensor(4, {0, 2}, DType::bf16)}, attrs(0, 5, 0, 1, 5)}};
}

const OpDef kSliceBackward{
    .name = "slice_backward",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const SliceAttrs& a = slice_of(call.attrs);
          out.add(call[0].dtype(), with_size(call[0].sizes(), a.dim, a.size));
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const SliceAttrs& a = slice_of(call.attrs);
          facets::fill_elements(outputs[0], facets::kSumIdentity);
          facets::for_each_index(call[0].extents(), [&](const Extents& at) {
            Extents target = at;
            target[static_cast<size_t>(a.dim)] = a.start.value() + at[static_cast<size_t>(a.dim)] * a.step;
            facets::move_element(outputs[0], target, call[0], at);
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const SliceAttrs& a = slice_of(c.attrs);
                       grads[0] = slice(c.grads[0], a.dim, a.start, a.start + a.length * a.step, a.step);
                     }},
    // A kernel and not a recipe: it writes a part of its output, where a recipe defines each element by its index.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const SliceAttrs& a = slice_of(call.attrs);
          if (a.length != a.size) facets::raw_fill(outputs[0], facets::kSumIdentity);
          facets::raw_copy(slice_view(outputs[0], a), call[0]);
        },
    .sharding = slice_sharding,
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          SliceAttrs a = slice_of(call.attrs);
          if (a.step == 1 && a.length == a.size) a.length = a.size = part.sizes[static_cast<size_t>(a.dim)];
          return Attrs::of(a);
        },
    .samples = slice_backward_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

SymInt clamp_position(SymInt position, SymInt size) {
  if (position < 0) position += size;
  if (position < 0) return 0;
  return position > size ? size : position;
}

}  // namespace

Tensor slice(const Tensor& x, int64_t dim, SymInt start, SymInt end, int64_t step) {
  const int d = normalize_dim(dim, x.ndim(), "slice");
  TUTTI_CHECK(step >= 1, "slice: the step along dim {} of {} is {}; it must be at least 1 (flip turns a dim around)", d,
              describe(x), step);
  const SymInt size = x.sizes()[static_cast<size_t>(d)];
  start = clamp_position(start, size);
  end = clamp_position(end, size);
  if (end < start) end = start;
  const SymInt length = step == 1 ? end - start : floordiv(end - start + (step - 1), step);
  return call_op(kSlice, Attrs::of(SliceAttrs{d, start, length, step, size}), x);
}

Tensor narrow(const Tensor& x, int64_t dim, SymInt start, SymInt length) {
  const int d = normalize_dim(dim, x.ndim(), "narrow");
  const SymInt size = x.sizes()[static_cast<size_t>(d)];
  if (start < 0) start += size;
  TUTTI_CHECK(start >= 0 && length >= 0 && start + length <= size,
              "narrow: elements {} to {} leave dim {} of {}, which has {} elements", start, start + length, d,
              describe(x), size);
  return call_op(kSlice, Attrs::of(SliceAttrs{d, start, length, 1, size}), x);
}

Tensor select(const Tensor& x, int64_t dim, SymInt index) {
  const int d = normalize_dim(dim, x.ndim(), "select");
  const SymInt size = x.sizes()[static_cast<size_t>(d)];
  TUTTI_CHECK(index < size && index >= -size,
              "select: index {} is out of range for dim {} of {}, which has {} elements", index, d, describe(x), size);
  return squeeze(narrow(x, d, index, 1), d);
}

const Tensor Tensor::operator[](SymInt index) const { return select(*this, 0, index); }

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const int d = normalize_dim(dim, x.ndim(), "split");
  TUTTI_CHECK(size >= 1, "split: pieces of {} elements along dim {} of {}; expected at least 1", size, d, describe(x));
  const int64_t total = x.sizes()[static_cast<size_t>(d)].guard_int();
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < total; at += size) sizes.push_back(std::min(size, total - at));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, d);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const int d = normalize_dim(dim, x.ndim(), "split");
  std::vector<Tensor> pieces;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    pieces.push_back(narrow(x, d, at, size));
    at += size;
  }
  TUTTI_CHECK(x.sizes()[static_cast<size_t>(d)] == at, "split: the pieces hold {} elements, dim {} of {} has {}", at, d,
              describe(x), x.sizes()[static_cast<size_t>(d)]);
  return pieces;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t dim) {
  const int d = normalize_dim(dim, x.ndim(), "chunk");
  TUTTI_CHECK(count >= 1, "chunk: {} pieces of dim {} of {}; expected at least 1", count, d, describe(x));
  const int64_t total = x.sizes()[static_cast<size_t>(d)].guard_int();
  return split(x, std::max<int64_t>((total + count - 1) / count, 1), d);
}

Tensor slice_backward(const Tensor& grad, int64_t dim, SymInt size, SymInt start, int64_t step) {
  const int d = normalize_dim(dim, grad.ndim(), "slice_backward");
  const SymInt length = grad.sizes()[static_cast<size_t>(d)];
  TUTTI_CHECK(step >= 1 && start >= 0 && (length == 0 || start + (length - 1) * step < size),
              "slice_backward: {} elements from {} by {} leave a dim of {} elements", length, start, step, size);
  return call_op(kSliceBackward, Attrs::of(SliceAttrs{d, start, length, step, size}), grad);
}

}  // namespace tutti

TUTTI_OPS(slice, &kSlice, &kSliceBackward)
