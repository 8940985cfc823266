#include "tutti/ops/copy.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/sum_to.h"

namespace tutti {
namespace {

constexpr DType kSampleDTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i64, DType::boolean};

const OpDef kClone{
    .name = "clone",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference = [](const OpCall& call, std::span<const Tensor> outputs) { copy_elements(outputs[0], call[0]); },
    // The cotangent moves on in the dtype it came in: a copy rounds nothing.
    .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) { grads[0] = c.grads[0]; }},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.in(0)); }},
    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "| id"); },
    .samples =
        [] {
          std::vector<Sample> samples = facets::pointwise_samples(1, kSampleDTypes, -2.0, 2.0);
          const Tensor x = facets::sample_tensor(3, {4, 6});
          samples.push_back({"transposed", {x.view_as({6, 4}, {1, 6}, 0)}, {}});
          return samples;
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

void infer_copy_into(const OpCall& call, OutputMetas& out) {
  const Shape sizes = broadcast_shapes(call[0].sizes(), call[1].sizes(), "copy_");
  TUTTI_CHECK(sizes == call[0].sizes(), "copy_: the source {} does not broadcast to the target {}", describe(call[1]),
              describe(call[0]));
  out.add(call[0].dtype(), call[0].sizes());
}

void copy_into_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor both[] = {outputs[0], call[1]};
  const bool integer = !is_floating(call[0].dtype()) && !is_floating(call[1].dtype());
  facets::for_each_element(call[0].extents(), both, [&](int64_t, const int64_t* at) {
    if (integer) facets::write_int64(outputs[0], at[0], facets::read_int64(call[1], at[1]));
    else facets::write_double(outputs[0], at[0], facets::read_double(call[1], at[1]));
  });
}

void copy_into_vjp(const VjpCall& c, std::span<Tensor> grads) {
  // Nothing of the old target is left, so its cotangent is zero.
  if (c.needs(1)) grads[1] = sum_to(c.grads[0], c.input_metas[1].sizes);
}

const OpDef kCopyInto{
    .name = "copy_",
    .num_inputs = 2,
    .writes = {0, -1, -1, -1},
    .infer = infer_copy_into,
    .reference = copy_into_reference,
    .gradient = {.vjp = copy_into_vjp},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(cast(b.in(1), compute_dtype(b.output_dtypes[0]))); }},
    // Terms are copied as they are; a conversion rounds their sum, and the terms that it overwrites are not read.
    .sharding =
        [](const OpCall& call) {
          return call[0].dtype() == call[1].dtype() ? facets::pointwise_sharding(call, "| id")
                                                    : facets::pointwise_sharding(call, "| zap", 2);
        },
    .samples =
        [] {
          const Tensor a = facets::sample_tensor(1, {3, 5}), b = facets::sample_tensor(2, {3, 5});
          const Tensor row = facets::sample_tensor(4, {5}, DType::f64);
          return std::vector<Sample>{{"f32", {a, b}, {}},
                                     {"broadcast_cast", {facets::sample_tensor(5, {3, 5}), row}, {}},
                                     {"into_strided", {facets::strided_copy(a), b}, {}}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor clone(const Tensor& x) { return call_op(kClone, {}, x); }
Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }
Tensor copy_(const Tensor& target, const Tensor& x) { return call_op(kCopyInto, {}, target, x); }

}  // namespace tutti

TUTTI_OPS(copy, &kClone, &kCopyInto)
