#include "tutti/ops/pad.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

struct PadAttrs {
  int64_t dim, before, after;
  double value;
  static constexpr auto fields() {
    return field_list(field::number<&PadAttrs::dim>("dim"), field::number<&PadAttrs::before>("before"),
                      field::number<&PadAttrs::after>("after"), field::number<&PadAttrs::value>("value"));
  }
};

const PadAttrs& pad_of(const OpCall& call) { return call.attrs.as<PadAttrs>(); }

// The part of the output where x stands.
Tensor inside(const OpCall& call, const Tensor& output) {
  const PadAttrs& a = pad_of(call);
  return output.view_as(call[0].extents(), output.strides(),
                        output.offset() + a.before * output.strides()[static_cast<size_t>(a.dim)]);
}

std::vector<Sample> pad_samples() {
  const auto attrs = [](int64_t dim, int64_t before, int64_t after, double value) {
    return Attrs::of(PadAttrs{dim, before, after, value});
  };
  return {{"rows", {facets::sample_tensor(1, {3, 5})}, attrs(0, 2, 1, 0.0)},
          {"columns_value", {facets::sample_tensor(2, {3, 5})}, attrs(1, 0, 4, -1.5)},
          {"nothing", {facets::sample_tensor(3, {4})}, attrs(0, 0, 0, 0.0)},
          {"around_empty_bf16", {facets::sample_tensor(4, {2, 0}, DType::bf16)}, attrs(1, 1, 2, 1.0)},
          {"strided_i64", {facets::strided_copy(facets::sample_tensor(5, {2, 3}, DType::i64))}, attrs(1, 1, 1, 7.0)}};
}

const OpDef kPad{
    .name = "pad",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          Shape sizes = call[0].sizes();
          sizes[static_cast<size_t>(pad_of(call).dim)] += pad_of(call).before + pad_of(call).after;
          out.add(call[0].dtype(), sizes);
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::fill_elements(outputs[0], pad_of(call).value);
          const Tensor part = inside(call, outputs[0]);
          facets::for_each_index(part.extents(),
                                 [&](const Extents& at) { facets::move_element(part, at, call[0], at); });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const PadAttrs& a = c.attrs.as<PadAttrs>();
                       grads[0] =
                           narrow(c.grads[0], a.dim, a.before, c.input_metas[0].sizes[static_cast<size_t>(a.dim)]);
                     }},
    // A kernel and not a recipe: an element outside must not read x at all, a recipe reads every operand.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          if (outputs[0].numel() != call[0].numel()) facets::raw_fill(outputs[0], pad_of(call).value);
          facets::raw_copy(inside(call, outputs[0]), call[0]);
        },
    .sharding =
        [](const OpCall& call) {
          const PadAttrs& a = pad_of(call);
          std::string letters = facets::dim_letters(call[0].ndim());
          if (a.before + a.after > 0) letters[static_cast<size_t>(a.dim)] = 'Z';
          return fmt::format("x[{0}] -> y[{0}] | | {1}", letters, a.value == 0.0 ? "id" : "idem");
        },
    .sharding_reads_numbers = true,
    .samples = pad_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor pad(const Tensor& x, int64_t dim, int64_t before, int64_t after, double value) {
  const int d = normalize_dim(dim, x.ndim(), "pad");
  TUTTI_CHECK(before >= 0 && after >= 0,
              "pad: {} before and {} after dim {} of {}; counts are not negative, narrow cuts", before, after, d,
              describe(x));
  return call_op(kPad, Attrs::of(PadAttrs{d, before, after, value}), x);
}

}  // namespace tutti

TUTTI_OPS(pad, &kPad)
