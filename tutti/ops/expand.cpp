#include "tutti/ops/expand.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/loop_nest.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/reshape.h"

namespace tutti {
namespace {

struct SizesAttrs {
  Shape sizes;
  static constexpr auto fields() { return field_list(field::size<&SizesAttrs::sizes>("sizes")); }
};

const Shape& sizes_of(const OpCall& call) { return call.attrs.as<SizesAttrs>().sizes; }

Attrs local_sizes(const OpCall&, const LocalBox& part) { return Attrs::of(SizesAttrs{to_shape(part.sizes)}); }

// Dims of `wide` that repeat a dim of `narrow` (right-aligned) or stand in front of it.
Dims repeated_dims(const Shape& wide, const Shape& narrow) {
  Dims dims;
  const int shift = wide.ndim() - narrow.ndim();
  for (int d = 0; d < wide.ndim(); ++d) {
    if (d < shift || (narrow[static_cast<size_t>(d - shift)] == 1 && wide[static_cast<size_t>(d)] != 1))
      dims.push_back(d);
  }
  return dims;
}

// The letters of both sides: the narrow one has 1 where it is repeated.
std::string narrow_letters(const Shape& wide, const Shape& narrow) {
  std::string letters = facets::dim_letters(wide.ndim());
  for (const int64_t d : repeated_dims(wide, narrow)) letters[static_cast<size_t>(d)] = '1';
  return letters.substr(static_cast<size_t>(wide.ndim() - narrow.ndim()));
}

// ---- expand ---------------------------------------------------------------------------------------------------------

void infer_expand(const OpCall& call, OutputMetas& out) {
  const Shape& sizes = sizes_of(call);
  const int shift = sizes.ndim() - call[0].ndim();
  TUTTI_CHECK(shift >= 0, "expand: {} has more dims than sizes {}", describe(call[0]), sizes);
  for (int d = shift; d < sizes.ndim(); ++d) {
    const SymInt from = call[0].sizes()[static_cast<size_t>(d - shift)], to = sizes[static_cast<size_t>(d)];
    TUTTI_CHECK(from == to || from == 1, "expand: dim {} of {} has size {}, which cannot become {} of {}", d - shift,
                describe(call[0]), from, to, sizes);
  }
  out.add(call[0].dtype(), sizes);
}

const OpDef kExpand{
    .name = "expand",
    .num_inputs = 1,
    .infer = infer_expand,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Tensor& x = call[0];
          const size_t shift = static_cast<size_t>(outputs[0].ndim() - x.ndim());
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            Extents source;
            for (size_t d = 0; d < x.sizes().size(); ++d) source.push_back(x.extents()[d] == 1 ? 0 : at[shift + d]);
            facets::move_element(outputs[0], at, x, source);
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       grads[0] = expand_backward(c.grads[0], c.input_metas[0].sizes);
                     }},
    .view =
        [](const OpCall& call) {
          OutputMetas metas;
          infer_expand(call, metas);
          const Extents sizes = concrete(metas.meta[0].sizes);
          return call[0].view_as(sizes, broadcast_strides(call[0], sizes), call[0].offset());
        },
    .sharding =
        [](const OpCall& call) {
          const Shape& sizes = sizes_of(call);
          return fmt::format("x[{}] -> y[{}] | | id", narrow_letters(sizes, call[0].sizes()),
                             facets::dim_letters(sizes.ndim()));
        },
    .local_attrs = local_sizes,
    .samples =
        [] {
          return std::vector<Sample>{
              {"inner", {facets::sample_tensor(1, {3, 1})}, Attrs::of(SizesAttrs{{3, 5}})},
              {"new_dims", {facets::sample_tensor(2, {4})}, Attrs::of(SizesAttrs{{3, 2, 4}})},
              {"mixed_bf16", {facets::sample_tensor(3, {1, 5, 1}, DType::bf16)}, Attrs::of(SizesAttrs{{2, 3, 5, 4}})},
              {"scalar", {facets::sample_tensor(4, {})}, Attrs::of(SizesAttrs{{3}})},
              {"to_empty", {facets::sample_tensor(5, {1, 2})}, Attrs::of(SizesAttrs{{0, 2}})},
              {"unchanged", {facets::sample_tensor(6, {2, 3})}, Attrs::of(SizesAttrs{{2, 3}})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- expand_backward ------------------------------------------------------------------------------------------------

void infer_expand_backward(const OpCall& call, OutputMetas& out) {
  const DType dtype = call[0].dtype();
  out.add(is_floating(dtype) ? compute_dtype(dtype) : dtype, sizes_of(call));
}

void expand_backward_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& y = outputs[0];
  std::vector<double> sums(static_cast<size_t>(y.numel()), facets::kSumIdentity);
  const Extents strides = broadcast_strides(y, call[0].extents());
  facets::for_each_index(call[0].extents(), [&](const Extents& at) {
    int64_t target = 0;
    for (size_t d = 0; d < at.size(); ++d) target += at[d] * strides[d];
    sums[static_cast<size_t>(target)] += facets::read_double(call[0], facets::offset_at(call[0], at));
  });
  for (int64_t i = 0; i < y.numel(); ++i) facets::write_double(y, i, sums[static_cast<size_t>(i)]);
}

std::vector<Sample> expand_backward_samples() {
  return {{"inner", {facets::sample_tensor(1, {3, 37})}, Attrs::of(SizesAttrs{{3, 1}})},
          {"leading", {facets::sample_tensor(2, {5, 2, 19})}, Attrs::of(SizesAttrs{{19}})},
          {"mixed_bf16", {facets::sample_tensor(3, {3, 4, 2}, DType::bf16)}, Attrs::of(SizesAttrs{{4, 1}})},
          {"f64", {facets::sample_tensor(4, {7, 3}, DType::f64)}, Attrs::of(SizesAttrs{{1, 3}})},
          {"from_empty", {facets::sample_tensor(5, {0, 3})}, Attrs::of(SizesAttrs{{1, 3}})}};
}

const OpDef kExpandBackward{
    .name = "expand_backward",
    .num_inputs = 1,
    .infer = infer_expand_backward,
    .reference = expand_backward_reference,
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = expand(c.grads[0], c.input_metas[0].sizes); }},
    .recipe = {.kind = codegen::LoopKind::row,
               .build =
                   [](RecipeBuilder& b) {
                     const Expr sum =
                         b.reduce(codegen::ReduceOp::sum, cast(b.in(0), compute_dtype(b.output_dtypes[0])));
                     b.out(sum);
                   },
               .row_dims = [](const OpCall& call) { return repeated_dims(call[0].sizes(), sizes_of(call)); },
               .per_row = 1,
               .leaf = [](const OpCall&) -> int64_t { return 1; }},
    .sharding =
        [](const OpCall& call) {
          return fmt::format("g[{}] -> y[{}] | {} | lin", facets::dim_letters(call[0].ndim()),
                             narrow_letters(call[0].sizes(), sizes_of(call)),
                             rows::tree_classes(call[0].sizes(), repeated_dims(call[0].sizes(), sizes_of(call)), 1));
        },
    .local_attrs = local_sizes,
    .samples = expand_backward_samples,
};

}  // namespace

Tensor expand(const Tensor& x, const Shape& sizes) {
  const int shift = sizes.ndim() - x.ndim();
  Shape full = sizes;
  for (int d = 0; d < sizes.ndim(); ++d) {
    if (sizes[static_cast<size_t>(d)] != -1) continue;
    TUTTI_CHECK(d >= shift, "expand: sizes {} keep dim {}, which {} does not have; -1 keeps a dim of the tensor", sizes,
                d, describe(x));
    full[static_cast<size_t>(d)] = x.sizes()[static_cast<size_t>(d - shift)];
  }
  return call_op(kExpand, Attrs::of(SizesAttrs{full}), x);
}

Tensor expand_as(const Tensor& x, const Tensor& other) { return expand(x, other.sizes()); }

Tensor expand_backward(const Tensor& grad, const Shape& sizes) {
  TUTTI_CHECK(broadcast_shapes(grad.sizes(), sizes, "expand_backward") == grad.sizes(),
              "expand_backward: sizes {} do not expand to those of the gradient {}", sizes, describe(grad));
  if (repeated_dims(grad.sizes(), sizes).empty()) return reshape(grad, sizes);
  return call_op(kExpandBackward, Attrs::of(SizesAttrs{sizes}), grad);
}

}  // namespace tutti

TUTTI_OPS(expand, &kExpand, &kExpandBackward)
