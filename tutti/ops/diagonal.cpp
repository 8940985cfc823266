#include "tutti/ops/diagonal.h"

#include <algorithm>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

// Sizes are those of the tensor that has the diagonal.
struct DiagonalAttrs {
  Extents sizes;
  int64_t offset, dim0, dim1;

  int64_t first_row() const { return std::max<int64_t>(-offset, 0); }
  int64_t first_column() const { return std::max<int64_t>(offset, 0); }
  int64_t length() const {
    return std::max<int64_t>(
        std::min(sizes[static_cast<size_t>(dim0)] - first_row(), sizes[static_cast<size_t>(dim1)] - first_column()), 0);
  }
  // Sizes, strides or an index without the two dims, then `last`.
  Extents reduced(const Extents& values, int64_t last) const {
    Extents result;
    for (int d = 0; d < values.ndim(); ++d) {
      if (d != dim0 && d != dim1) result.push_back(values[static_cast<size_t>(d)]);
    }
    result.push_back(last);
    return result;
  }
  // The index in the large tensor of index `at` of the diagonal.
  Extents index(const Extents& at) const {
    Extents result;
    size_t k = 0;
    for (int d = 0; d < sizes.ndim(); ++d)
      result.push_back(d == dim0 ? at.back() + first_row() : d == dim1 ? at.back() + first_column() : at[k++]);
    return result;
  }
  static constexpr auto fields() {
    return field_list(field::number<&DiagonalAttrs::sizes>("sizes"), field::number<&DiagonalAttrs::offset>("offset"),
                      field::number<&DiagonalAttrs::dim0>("dim0"), field::number<&DiagonalAttrs::dim1>("dim1"));
  }
};

const DiagonalAttrs& diagonal_of(const Attrs& attrs) { return attrs.as<DiagonalAttrs>(); }

Tensor diagonal_view(const Tensor& x, const DiagonalAttrs& a) {
  const int64_t s0 = x.strides()[static_cast<size_t>(a.dim0)], s1 = x.strides()[static_cast<size_t>(a.dim1)];
  const int64_t start = a.length() == 0 ? 0 : a.first_row() * s0 + a.first_column() * s1;
  return x.view_as(a.reduced(a.sizes, a.length()), a.reduced(x.strides(), s0 + s1), x.offset() + start);
}

// The large tensor's letters, the two dims whole, and the diagonal's.
std::pair<std::string, std::string> letters(const DiagonalAttrs& a) {
  const std::string large = facets::dim_letters(a.sizes.ndim(), 1u << a.dim0 | 1u << a.dim1);
  std::string small;
  for (int d = 0; d < a.sizes.ndim(); ++d) {
    if (d != a.dim0 && d != a.dim1) small += large[static_cast<size_t>(d)];
  }
  return {large, small + 'Z'};
}

const OpDef kDiagonal{
    .name = "diagonal",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const DiagonalAttrs& a = diagonal_of(call.attrs);
          out.add(call[0].dtype(), to_shape(a.reduced(a.sizes, a.length())));
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            facets::move_element(outputs[0], at, call[0], diagonal_of(call.attrs).index(at));
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const DiagonalAttrs& a = diagonal_of(c.attrs);
                       grads[0] = diagonal_backward(c.grads[0], to_shape(a.sizes), a.offset, a.dim0, a.dim1);
                     }},
    .view = [](const OpCall& call) { return diagonal_view(call[0], diagonal_of(call.attrs)); },
    .sharding =
        [](const OpCall& call) {
          const auto [large, small] = letters(diagonal_of(call.attrs));
          return fmt::format("x[{}] -> y[{}] | | id", large, small);
        },
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          DiagonalAttrs a = diagonal_of(call.attrs);
          size_t k = 0;
          for (int d = 0; d < a.sizes.ndim(); ++d) {
            if (d != a.dim0 && d != a.dim1) a.sizes[static_cast<size_t>(d)] = part.sizes[k++];
          }
          return Attrs::of(a);
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {"square", {facets::sample_tensor(1, {5, 5})}, Attrs::of(DiagonalAttrs{{5, 5}, 0, 0, 1})},
              {"above_batch", {facets::sample_tensor(2, {3, 4, 7})}, Attrs::of(DiagonalAttrs{{3, 4, 7}, 2, 1, 2})},
              {"below_bf16",
               {facets::sample_tensor(3, {4, 3, 5}, DType::bf16)},
               Attrs::of(DiagonalAttrs{{4, 3, 5}, -1, 2, 0})},
              {"outside", {facets::sample_tensor(4, {3, 3})}, Attrs::of(DiagonalAttrs{{3, 3}, 5, 0, 1})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

const OpDef kDiagonalBackward{
    .name = "diagonal_backward",
    .num_inputs = 1,
    .infer = [](const OpCall& call,
                OutputMetas& out) { out.add(call[0].dtype(), to_shape(diagonal_of(call.attrs).sizes)); },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::fill_elements(outputs[0], facets::kSumIdentity);
          facets::for_each_index(call[0].extents(), [&](const Extents& at) {
            facets::move_element(outputs[0], diagonal_of(call.attrs).index(at), call[0], at);
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const DiagonalAttrs& a = diagonal_of(c.attrs);
                       grads[0] = diagonal(c.grads[0], a.offset, a.dim0, a.dim1);
                     }},
    // A kernel and not a recipe: it writes a part of its output.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::raw_fill(outputs[0], facets::kSumIdentity);
          facets::raw_copy(diagonal_view(outputs[0], diagonal_of(call.attrs)), call[0]);
        },
    .sharding =
        [](const OpCall& call) {
          const auto [large, small] = letters(diagonal_of(call.attrs));
          return fmt::format("g[{}] -> x[{}] | | id", small, large);
        },
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          DiagonalAttrs a = diagonal_of(call.attrs);
          a.sizes = part.sizes;
          return Attrs::of(a);
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {"square", {facets::sample_tensor(1, {5})}, Attrs::of(DiagonalAttrs{{5, 5}, 0, 0, 1})},
              {"above_batch", {facets::sample_tensor(2, {3, 4})}, Attrs::of(DiagonalAttrs{{3, 4, 7}, 2, 1, 2})},
              {"outside", {facets::sample_tensor(4, {0})}, Attrs::of(DiagonalAttrs{{3, 3}, 5, 0, 1})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

DiagonalAttrs attrs_for(const Extents& sizes, int64_t offset, int64_t dim0, int64_t dim1, const char* where) {
  const int d0 = normalize_dim(dim0, sizes.ndim(), where), d1 = normalize_dim(dim1, sizes.ndim(), where);
  TUTTI_CHECK(d0 != d1, "{}: both dims are {}; a diagonal lies between two dims", where, d0);
  return {sizes, offset, d0, d1};
}

}  // namespace

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim0, int64_t dim1) {
  return call_op(kDiagonal, Attrs::of(attrs_for(concrete(x.sizes()), offset, dim0, dim1, "diagonal")), x);
}

Tensor diagonal_backward(const Tensor& grad, const Shape& sizes, int64_t offset, int64_t dim0, int64_t dim1) {
  const DiagonalAttrs a = attrs_for(concrete(sizes), offset, dim0, dim1, "diagonal_backward");
  const Shape expected = to_shape(a.reduced(a.sizes, a.length()));
  TUTTI_CHECK(grad.sizes() == expected, "diagonal_backward: the gradient is {}, the diagonal of {} has sizes {}",
              describe(grad), sizes, expected);
  return call_op(kDiagonalBackward, Attrs::of(a), grad);
}

}  // namespace tutti

TUTTI_OPS(diagonal, &kDiagonal, &kDiagonalBackward)
