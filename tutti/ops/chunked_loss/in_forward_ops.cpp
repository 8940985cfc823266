#include "tutti/ops/chunked_loss/in_forward.h"
#include "tutti/ops/chunked_loss/ops.h"
#include "tutti/ops/chunked_loss/shared_facets.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::chunked_loss {
namespace {

void infer_loss(const OpCall& call, OutputMetas& out) {
  out.add(computes_in(call), {call[kX].size(0), 1});
  add_gradient_metas(call, out);
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  check_constants(call);
  for (size_t k = 1; k < call.grads.size(); ++k)
    TUTTI_CHECK(!call.grads[k].defined(),
                "linear_cross_entropy: gradients of the gradients that its forward computed are not supported; use "
                "LossGradients::recomputed");
  if (!call.grads[0].defined()) return;
  LossAttrs attrs = call.attrs.as<LossAttrs>();
  attrs.needs = needs_of(call);
  if (attrs.needs == 0) return;
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.end());
  inputs.push_back(call.grads[0]);
  for (size_t k = 0; k < 3; ++k) {  // what is not asked for need not live until here
    const Tensor& given = call.outputs[1 + k];
    inputs.push_back(
        (attrs.needs >> k & 1) != 0 ? given : full_beside(given, k < 2 ? Shape{0, 0} : Shape{0}, 0.0, given.dtype()));
  }
  Tensor results[3];
  apply(kTakenGradients, inputs, Attrs::of(attrs), results);
  for (size_t k = 0; k < 2; ++k) {
    if ((attrs.needs >> k & 1) != 0) grads[k] = results[k];
  }
  if ((attrs.needs & kNeedBias) != 0) grads[kBias] = results[2];
}

std::string sharding_of_loss(const OpCall& call) {
  return sharding_of_inputs(call) + " #g[a1] -> y[a1] " + sharding_of_results(call, 'a') + " | sum{a} |";
}

// A given sum over rows is the sum over all of them: where there is one, each rank must hold all rows.
std::string sharding_of_taken(const OpCall& call) {
  const bool given_sum = call[kGivenWeight].numel() > 0 || call[kGivenBias].numel() > 0;
  std::string rule =
      sharding_of_inputs(call) +
      fmt::format(" #g[a1] #h[a1] #i[{}] #j[{}] #k[{}] -> ", call[kGivenX].extents()[1] > 0 ? "aF" : "ZY",
                  call[kGivenWeight].extents()[1] > 0 ? "CF" : "ZY", call[kGivenBias].numel() > 0 ? "C" : "Z") +
      sharding_of_results(call, 'a') + (given_sum ? " | |" : " | sum{a} |");
  if (given_sum) {
    for (char& c : rule) c = c == 'a' ? 'A' : c;
  }
  return rule;
}

}  // namespace

const OpDef kLossWithGradients{
    .name = "linear_cross_entropy_with_gradients",
    .num_inputs = kInForwardInputs,
    .num_outputs = 4,
    .infer = infer_loss,
    .reference = reference_loss_with_gradients,
    .gradient = {.vjp = vjp,
                 .saves_inputs = 0b111111,
                 .saves_outputs = 0b1110,
                 .constant_inputs = 1u << kMix | 1u << kGuess},
    .check = check_labels,
    .kernel = kernel_loss_with_gradients,  // as linear_cross_entropy
    .sharding = sharding_of_loss,
    .recompute = Recompute::never,  // its gradients are there to be kept
    .cost =
        [](const OpCall& call) { return cost_of_products(call, 1 + needs(call, kNeedX) + needs(call, kNeedWeight)); },
    .samples = samples_with_gradients,
    .tolerance = {.f32 = 1e-4}};
const OpDef kTakenGradients{
    .name = "linear_cross_entropy_with_gradients_backward",
    .num_inputs = kTakenInputs,
    .num_outputs = 3,
    .infer = add_gradient_metas,
    .reference = reference_taken_gradients,
    .gradient = {.none = kNoSecondGradient},
    .kernel = kernel_taken_gradients,  // it compares before it copies, or is linear_cross_entropy_backward
    .sharding = sharding_of_taken,
    .cost = [](const OpCall& call) { return cost_of_products(call, 0); },  // of a right guess
    .samples = samples_of_taken,
    .tolerance = {.f32 = 1e-4}};

}  // namespace tutti::chunked_loss
