#include "tutti/ops/scatter.h"

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/indexing/scatter_targets.h"

namespace tutti {
namespace {

void infer_equal_dtypes(const OpCall& call, OutputMetas& out) {
  TUTTI_CHECK(call[0].dtype() == call[2].dtype(), "{}: the source {} must have the dtype of {}; cast it", call.op.name,
              describe(call[2]), describe(call[0]));
  facets::infer_scatter(call, out);
}

void scatter_reference(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_scatter_indices(call);
  copy_elements(outputs[0], call[0]);
  facets::for_each_index(call[1].extents(), [&](const Extents& at) {
    Extents target = at;
    target[facets::scatter_dim(call.attrs)] = facets::read_int64(call[1], facets::offset_at(call[1], at));
    facets::move_element(outputs[0], target, call[2], at);
  });
}

void scatter_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const int64_t dim = c.attrs.as<facets::ScatterAttrs>().dim;
  const Tensor& grad = c.grads[0];
  if (c.needs(0))
    grads[0] =
        scatter(grad, dim, c.inputs[1], full_beside(grad, c.input_metas[2].sizes, facets::kSumIdentity, grad.dtype()));
  if (c.needs(2)) grads[2] = gather(grad, dim, c.inputs[1]);
}

const OpDef kScatter{
    .name = "scatter",
    .num_inputs = 3,
    .infer = infer_equal_dtypes,
    .reference = scatter_reference,
    .gradient = {.vjp = scatter_vjp, .saves_inputs = 0b10},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.in(2)); },
               .pick =
                   [](const OpCall& call) {
                     return Pick{.index = 1,
                                 .dim = call.attrs.as<facets::ScatterAttrs>().dim,
                                 .loops = Pick::Loops::of_index,
                                 .start = 0};
                   },
               .explain = facets::check_scatter_indices,
               .moves_bits = true},
    .sharding = [](const OpCall& call) { return facets::scatter_sharding(call, "id"); },
    .samples =
        [] {
          const Tensor distinct = Tensor::of<int64_t>({3, 0, 4, 1, 2, 0}, {2, 3});
          return std::vector<Sample>{
              {"columns",
               {facets::sample_tensor(1, {2, 5}), distinct, facets::sample_tensor(2, {2, 3})},
               Attrs::of(facets::ScatterAttrs{1})},
              {"rows_bf16",
               {facets::sample_tensor(3, {5, 3}, DType::bf16), distinct, facets::sample_tensor(4, {2, 3}, DType::bf16)},
               Attrs::of(facets::ScatterAttrs{0})},
              {"narrower",
               {facets::sample_tensor(5, {4, 5}), distinct, facets::sample_tensor(6, {2, 3})},
               Attrs::of(facets::ScatterAttrs{1})},
              {"empty",
               {facets::sample_tensor(7, {2, 3}), Tensor::empty({0, 3}, DType::i32), Tensor::empty({0, 3})},
               Attrs::of(facets::ScatterAttrs{0})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

Attrs attrs_for(const Tensor& x, int64_t dim, const char* where) {
  return Attrs::of(facets::ScatterAttrs{normalize_dim(dim, x.ndim(), where)});
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return call_op(kScatter, attrs_for(x, dim, "scatter"), x, index, source);
}

}  // namespace tutti

TUTTI_OPS(scatter, &kScatter)
