#include "tutti/ops/fma.h"

#include <cmath>

#include "tutti/ops/binary.h"
#include "tutti/ops/pointwise/pointwise.h"

namespace tutti {
namespace {

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const DType compute = compute_dtype(outputs[0].dtype());
  const auto fused = [compute](const double* v) -> double {
    if (compute == DType::f64) return std::fma(v[0], v[1], v[2]);
    return std::fma(static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]));
  };
  pointwise::run_map({outputs[0], call.inputs, compute}, fused, [](const int64_t* v) {
    return static_cast<int64_t>(static_cast<uint64_t>(v[0]) * static_cast<uint64_t>(v[1]) +
                                static_cast<uint64_t>(v[2]));
  });
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor& g = c.grads[0];
  if (!g.defined()) return;
  for (const size_t i : {0, 1}) {
    if (!c.needs(i)) continue;
    const bool summed = pointwise::is_summed(g, c.input_metas[i]);
    const Tensor& other = c.inputs[1 - i];
    grads[i] = pointwise::reduce_like(summed ? mul(pointwise::widened(g), pointwise::widened(other)) : mul(g, other),
                                      c.input_metas[i]);
  }
  if (c.needs(2)) grads[2] = pointwise::reduce_like(g, c.input_metas[2]);
}

const OpDef kFma{
    .name = "fma",
    .num_inputs = 3,
    .infer = facets::infer_pointwise,
    .reference = reference,
    .gradient = {.vjp = vjp, .saves_inputs = 3},
    .recipe = {.build =
                   [](RecipeBuilder& b) {
                     const DType dtype = compute_dtype(b.output_dtypes[0]);
                     b.out(apply_scalar(ScalarOp::fma, pointwise::in(b, 0, dtype), pointwise::in(b, 1, dtype),
                                        pointwise::in(b, 2, dtype)));
                   }},
    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "|", 7); },
    .samples =
        [] {
          constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i8};
          constexpr pointwise::Range range[] = {{-3, 3}, {-3, 3}, {-3, 3}}, integers[] = {{-9, 9}, {-9, 9}, {-9, 9}};
          return pointwise::samples(dtypes, range, integers);
        },
    .tolerance = {0, 0},
};

}  // namespace

Tensor fma(const Tensor& a, const Tensor& b, const Tensor& c) { return call_op(kFma, {}, a, b, c); }

}  // namespace tutti

TUTTI_OPS(fma, &kFma)
