#include "tutti/ops/chunked_loss/ops.h"

#include "tutti/ops/chunked_loss/backward.h"
#include "tutti/ops/chunked_loss/forward.h"
#include "tutti/ops/chunked_loss/plan.h"
#include "tutti/ops/chunked_loss/reference.h"
#include "tutti/ops/chunked_loss/shared_facets.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::chunked_loss {
namespace {

void infer_loss(const OpCall& call, OutputMetas& out) {
  const bool mix = !(call[kMix].size(1) == 0);
  for (const int64_t columns : {1, 1, mix ? 1 : 0, 2}) out.add(computes_in(call), {call[kX].size(0), columns});
}

void infer_shard(const OpCall& call, OutputMetas& out) {
  for (int k = 0; k < 3; ++k) out.add(computes_in(call), {call[kX].size(0), 1});
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor &loss = call.grads[kRowLoss], &lse = call.grads[kRowLse], &mixed = call.grads[kRowMixed];
  check_constants(call);
  TUTTI_CHECK(!call.grads[kRowStatistics].defined(), "linear_cross_entropy: the statistics have no gradient");
  if (!loss.defined() && !lse.defined() && !mixed.defined()) return;
  const Tensor& statistics = call.outputs[kRowStatistics];
  const DType dtype = statistics.dtype();
  const Tensor none = full_beside(statistics, {0, 1}, 0.0, dtype);
  const auto or_zero = [&](const Tensor& t) {
    return t.defined() ? t : full_beside(statistics, {statistics.size(0), 1}, 0.0, dtype);
  };
  const bool has_mix = !(call.inputs[kMix].size(1) == 0);
  LossAttrs attrs = call.attrs.as<LossAttrs>();
  attrs.needs = needs_of(call);
  if (attrs.needs == 0) return;
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.end());
  for (const Tensor& t : {statistics, or_zero(loss), lse.defined() ? lse : none, has_mix ? or_zero(mixed) : none})
    inputs.push_back(t);
  Tensor results[3];
  apply(kGradients, inputs, Attrs::of(attrs), results);
  if (call.needs(kX)) grads[kX] = results[0];
  if (call.needs(kWeight)) grads[kWeight] = results[1];
  if ((attrs.needs & kNeedBias) != 0) grads[kBias] = results[2];
}

std::string sharding_of_loss(const OpCall& call) {
  return sharding_of_inputs(call) + fmt::format(" -> y[a1] l[a1] u[a{}] s[aS] | |", has_mix(call) ? "1" : "Z");
}
std::string sharding_of_gradients(const OpCall& call) {
  const bool mass = call[kGradMass].numel() > 0, mix = has_mix(call);
  return sharding_of_inputs(call) + fmt::format(" #s[aS] #g[a1] #h[{}1] #e[{}1] -> {} | sum{{a}} |", mass ? "a" : "Z",
                                                mix ? "a" : "Z", sharding_of_results(call, 'a'));
}

}  // namespace

const OpDef kLoss{.name = "linear_cross_entropy",
                  .num_inputs = kForwardInputs,
                  .num_outputs = kLossOutputs,
                  .infer = infer_loss,
                  .reference = reference_loss,
                  .gradient = {.vjp = vjp,
                               .saves_inputs = 0b11111,
                               .saves_outputs = 1u << kRowStatistics,
                               .constant_inputs = 1u << kMix},
                  .check = check_labels,
                  .kernel = kernel_loss,  // matrix products and row recipes in turn on chunks: no single loop nest
                  .sharding = sharding_of_loss,
                  .recompute = Recompute::costly,
                  .room = room_within_bound,
                  .cost = [](const OpCall& call) { return cost_of_products(call, 1); },
                  .samples = [] { return samples(SampleOf::loss); },
                  .tolerance = {.f32 = 3e-5}};
const OpDef kShardStatistics{
    .name = "linear_class_statistics",
    .num_inputs = kForwardInputs,
    .num_outputs = 3,
    .infer = infer_shard,
    .reference = reference_shard_statistics,
    .gradient =
        {.none =
             "it is a part of linear cross entropy over ranks, whose gradient is linear_cross_entropy_shard_backward"},
    .kernel = kernel_shard_statistics,  // as linear_cross_entropy
    .sharding = [](const OpCall& call) { return sharding_of_inputs(call) + " -> m[a1] r[a1] y[a1] | |"; },
    .recompute = Recompute::costly,
    .room = room_within_bound,
    .cost = [](const OpCall& call) { return cost_of_products(call, 1); },
    .samples = [] { return samples(SampleOf::shard); },
    .tolerance = {.f32 = 3e-5}};
const OpDef kGradients{
    .name = "linear_cross_entropy_backward",
    .num_inputs = kBackwardInputs,
    .num_outputs = 3,
    .infer = add_gradient_metas,
    .reference = reference_gradients,
    .gradient = {.none = kNoSecondGradient},
    .kernel = kernel_gradients,  // as linear_cross_entropy
    .sharding = sharding_of_gradients,
    .room = room_within_bound,
    .cost =
        [](const OpCall& call) { return cost_of_products(call, 1 + needs(call, kNeedX) + needs(call, kNeedWeight)); },
    .samples = [] { return samples(SampleOf::gradients); },
    .tolerance = {.f32 = 1e-4}};

}  // namespace tutti::chunked_loss
