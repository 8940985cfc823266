#include "tutti/ops/unfold.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

// `sizes` are those of the tensor under the windows.
struct UnfoldAttrs {
  Extents sizes;
  int64_t dim, size, step;

  size_t at() const { return static_cast<size_t>(dim); }
  Extents windows() const {
    Extents result = sizes;
    result[at()] = (sizes[at()] - size) / step + 1;
    result.push_back(size);
    return result;
  }
  // The index under index `window` of the windows.
  Extents index(const Extents& window) const {
    Extents result = window;
    result.pop_back();
    result[at()] = window[at()] * step + window.back();
    return result;
  }
  static constexpr auto fields() {
    return field_list(field::number<&UnfoldAttrs::sizes>("sizes"), field::number<&UnfoldAttrs::dim>("dim"),
                      field::number<&UnfoldAttrs::size>("size"), field::number<&UnfoldAttrs::step>("step"));
  }
};

const UnfoldAttrs& unfold_of(const Attrs& attrs) { return attrs.as<UnfoldAttrs>(); }

std::pair<std::string, std::string> letters(const UnfoldAttrs& a) {
  const std::string large = facets::dim_letters(a.sizes.ndim(), 1u << a.dim);
  std::string windows = large;
  windows[a.at()] = 'Y';
  return {large, windows + 'Z'};
}

Attrs local_unfold(const UnfoldAttrs& whole, const Extents& part) {
  UnfoldAttrs a = whole;
  for (int d = 0; d < a.sizes.ndim(); ++d) {
    if (d != a.dim) a.sizes[static_cast<size_t>(d)] = part[static_cast<size_t>(d)];
  }
  return Attrs::of(a);
}

const OpDef kUnfold{
    .name = "unfold",
    .num_inputs = 1,
    .infer = [](const OpCall& call,
                OutputMetas& out) { out.add(call[0].dtype(), to_shape(unfold_of(call.attrs).windows())); },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            facets::move_element(outputs[0], at, call[0], unfold_of(call.attrs).index(at));
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const UnfoldAttrs& a = unfold_of(c.attrs);
                       grads[0] = unfold_backward(c.grads[0], to_shape(a.sizes), a.dim, a.size, a.step);
                     }},
    .view =
        [](const OpCall& call) {
          const UnfoldAttrs& a = unfold_of(call.attrs);
          Extents strides = call[0].strides();
          const int64_t inner = strides[a.at()];
          strides[a.at()] *= a.step;
          strides.push_back(inner);
          return call[0].view_as(a.windows(), strides, call[0].offset());
        },
    .sharding =
        [](const OpCall& call) {
          const auto [large, windows] = letters(unfold_of(call.attrs));
          return fmt::format("x[{}] -> y[{}] | | id", large, windows);
        },
    .local_attrs = [](const OpCall& call,
                      const LocalBox& part) { return local_unfold(unfold_of(call.attrs), part.sizes); },
    .samples =
        [] {
          return std::vector<Sample>{
              {"overlapping", {facets::sample_tensor(1, {9})}, Attrs::of(UnfoldAttrs{{9}, 0, 4, 2})},
              {"first_dim", {facets::sample_tensor(2, {7, 3})}, Attrs::of(UnfoldAttrs{{7, 3}, 0, 3, 1})},
              {"apart_bf16",
               {facets::sample_tensor(3, {2, 11}, DType::bf16)},
               Attrs::of(UnfoldAttrs{{2, 11}, 1, 2, 4})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

// out[index] += grad in row-major order of grad: of the windows over one element, the lower comes first.
template <class T>
void add_windows(const OpCall& call, const Tensor& output) {
  const UnfoldAttrs& a = unfold_of(call.attrs);
  facets::fill_elements(output, facets::kSumIdentity);
  T* out = static_cast<T*>(output.raw_data());
  facets::for_each_index(call[0].extents(), [&](const Extents& at) {
    const double value = facets::read_double(call[0], facets::offset_at(call[0], at));
    out[facets::offset_at(output, a.index(at))] += static_cast<T>(value);
  });
}

const OpDef kUnfoldBackward{
    .name = "unfold_backward",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const DType dtype = compute_dtype(call[0].dtype());
          out.add(dtype, to_shape(unfold_of(call.attrs).sizes));
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Tensor sums = Tensor::empty(outputs[0].extents(), DType::f64);
          add_windows<double>(call, sums);
          for (int64_t i = 0; i < sums.numel(); ++i) facets::write_double(outputs[0], i, sums.data<double>()[i]);
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const UnfoldAttrs& a = unfold_of(c.attrs);
                       grads[0] = unfold(c.grads[0], a.dim, a.size, a.step);
                     }},
    // A kernel and not a recipe: the number of terms differs between elements.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          if (outputs[0].dtype() == DType::f64) add_windows<double>(call, outputs[0]);
          else add_windows<float>(call, outputs[0]);
        },
    .sharding =
        [](const OpCall& call) {
          const auto [large, windows] = letters(unfold_of(call.attrs));
          return fmt::format("g[{}] -> x[{}] | | lin", windows, large);
        },
    .local_attrs = [](const OpCall& call,
                      const LocalBox& part) { return local_unfold(unfold_of(call.attrs), part.sizes); },
    .samples =
        [] {
          return std::vector<Sample>{
              {"overlapping", {facets::sample_tensor(1, {3, 4})}, Attrs::of(UnfoldAttrs{{9}, 0, 4, 2})},
              {"first_dim_f64",
               {facets::sample_tensor(2, {5, 3, 3}, DType::f64)},
               Attrs::of(UnfoldAttrs{{7, 3}, 0, 3, 1})},
              {"apart_bf16",
               {facets::sample_tensor(3, {2, 3, 2}, DType::bf16)},
               Attrs::of(UnfoldAttrs{{2, 11}, 1, 2, 4})}};
        },
};

UnfoldAttrs attrs_for(const Extents& sizes, int64_t dim, int64_t size, int64_t step, const char* where) {
  const int d = normalize_dim(dim, sizes.ndim(), where);
  TUTTI_CHECK(step >= 1, "{}: the step between windows is {}; it must be at least 1", where, step);
  TUTTI_CHECK(size >= 1 && size <= sizes[static_cast<size_t>(d)], "{}: windows of {} elements do not fit dim {} of {}",
              where, size, d, sizes);
  return {sizes, d, size, step};
}

}  // namespace

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  return call_op(kUnfold, Attrs::of(attrs_for(concrete(x.sizes()), dim, size, step, "unfold")), x);
}

Tensor unfold_backward(const Tensor& grad, const Shape& sizes, int64_t dim, int64_t size, int64_t step) {
  TUTTI_CHECK(is_floating(grad.dtype()), "unfold_backward: the gradient is {}; expected a float dtype", describe(grad));
  const UnfoldAttrs a = attrs_for(concrete(sizes), dim, size, step, "unfold_backward");
  TUTTI_CHECK(grad.sizes() == to_shape(a.windows()),
              "unfold_backward: the gradient is {}, the windows of {} have sizes {}", describe(grad), sizes,
              a.windows());
  return call_op(kUnfoldBackward, Attrs::of(a), grad);
}

}  // namespace tutti

TUTTI_OPS(unfold, &kUnfold, &kUnfoldBackward)
