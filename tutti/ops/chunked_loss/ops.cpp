#include "tutti/ops/chunked_loss/ops.h"

#include "tutti/ops/binary.h"
#include "tutti/ops/chunked_loss/backward.h"
#include "tutti/ops/chunked_loss/forward.h"
#include "tutti/ops/chunked_loss/reference.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::chunked_loss {
namespace {

void infer_loss(const OpCall& call, OutputMetas& out) {
  const DType dtype = computes_in(call);
  const bool mix = !(call[kMix].size(1) == 0);
  out.add(dtype, {call[kX].size(0), 1});
  out.add(dtype, {call[kX].size(0), 1});
  out.add(dtype, {call[kX].size(0), mix ? 1 : 0});
}

void infer_shard(const OpCall& call, OutputMetas& out) {
  for (int k = 0; k < 3; ++k) out.add(computes_in(call), {call[kX].size(0), 1});
}

// What nobody needs has no elements.
void infer_gradients(const OpCall& call, OutputMetas& out) {
  const DType dtype = computes_in(call);
  out.add(attrs_of(call).partial ? dtype : call[kX].dtype(), needs(call, kNeedX) ? call[kX].sizes() : Shape{0, 0});
  out.add(dtype, needs(call, kNeedWeight) ? call[kWeight].sizes() : Shape{0, 0});
  out.add(dtype, needs(call, kNeedBias) ? call[kBias].sizes() : Shape{0});
}

void check_labels(const OpCall& call) {
  const Tensor& labels = call[kLabels];
  const int64_t ignored = attrs_of(call).ignore_index;
  for (int64_t n = 0; n < labels.extent(0); ++n) {
    const int64_t label = facets::read_int64(labels, n * labels.strides()[0]);
    TUTTI_CHECK(label == ignored || (label >= 0 && label < classes_of(call)),
                "linear_cross_entropy: label {} at row {} is outside [0, {}); use ignore_index, {} here, for rows to ignore", label, n,
                classes_of(call), ignored);
  }
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor &loss = call.grads[0], &lse = call.grads[1], &mix = call.grads[2];
  TUTTI_CHECK(!call.needs(kMix), "linear_cross_entropy: the target probabilities, or the class weights of label_smoothing, want a gradient, which "
              "this loss does not give; detach them, or write the loss with log_softmax");
  if (!loss.defined() && !lse.defined() && !mix.defined()) return;
  const Tensor& rows = call.outputs[1];
  const Tensor none = full({0, 1}, 0.0, rows.dtype());
  const auto or_zero = [&](const Tensor& t) { return t.defined() ? t : zeros(rows.sizes(), rows.dtype()); };
  const bool sums = lse.defined() || mix.defined(), has_mix = !(call.inputs[kMix].size(1) == 0);
  const Tensor both = !sums ? none : !loss.defined() ? or_zero(lse) : !lse.defined() ? loss : add(loss, lse);
  LossAttrs attrs = call.attrs.as<LossAttrs>();
  const bool bias = call.needs(kBias) && !(call.inputs[kBias].size(0) == 0);
  attrs.needs = static_cast<uint8_t>((call.needs(kX) ? kNeedX : 0) | (call.needs(kWeight) ? kNeedWeight : 0) | (bias ? kNeedBias : 0));
  if (attrs.needs == 0) return;
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.end());
  for (const Tensor& t : {rows, or_zero(loss), both, has_mix ? or_zero(mix) : none}) inputs.push_back(t);
  Tensor results[3];
  apply(kGradients, inputs, Attrs::of(attrs), results);
  if (call.needs(kX)) grads[kX] = results[0];
  if (call.needs(kWeight)) grads[kWeight] = results[1];
  if (bias) grads[kBias] = results[2];
}

// x [aF], weight [CF], labels [a1] and so on; what is absent has letters of its own.
std::string sharding_of_inputs(const OpCall& call) {
  const bool of_rows = has_mix(call) && call[kMix].extents()[0] > 1;
  return fmt::format("#x[aF] #w[CF] #t[a1] #b[{}] #m[{}]", has_bias(call) ? "C" : "Z", !has_mix(call) ? "ZY" : of_rows ? "aC" : "1C");
}
std::string sharding_of_loss(const OpCall& call) {
  return sharding_of_inputs(call) + fmt::format(" -> y[a1] s[a1] u[a{}] | |", has_mix(call) ? "1" : "Z");
}
std::string sharding_of_gradients(const OpCall& call) {
  const bool sums = call[kGradSum].numel() > 0, mix = has_mix(call);
  return sharding_of_inputs(call) + fmt::format(" #s[a1] #g[a1] #h[{}1] #e[{}1] -> p[{}] q[{}] r[{}] | sum{{a}} |", sums ? "a" : "Z", mix ? "a" : "Z",
                                                needs(call, kNeedX) ? "aF" : "ZY", needs(call, kNeedWeight) ? "CF" : "ZY", needs(call, kNeedBias) ? "C" : "Z");
}

Cost cost(const OpCall& call, double products) {
  const double pairs = static_cast<double>(rows_of(call)) * static_cast<double>(classes_of(call));
  double bytes = 0;
  for (const Tensor& t : call.inputs) bytes += static_cast<double>(t.nbytes());
  return {2 * products * pairs * static_cast<double>(features_of(call)), bytes};
}

}  // namespace

const OpDef kLoss{.name = "linear_cross_entropy", .num_inputs = kForwardInputs, .num_outputs = 3, .infer = infer_loss, .reference = reference_loss,
                  .gradient = {.vjp = vjp, .saves_inputs = 0b11111, .saves_outputs = 0b10, .constant_inputs = 1u << kMix},
                  .check = check_labels,
                  .kernel = kernel_loss,  // matrix products and row recipes in turn on chunks: no single loop nest
                  .sharding = sharding_of_loss, .recompute = Recompute::costly,
                  .cost = [](const OpCall& call) { return cost(call, 1); },
                  .samples = [] { return samples(SampleOf::loss); }, .tolerance = {.f32 = 3e-5}};
const OpDef kShardStatistics{.name = "linear_class_statistics", .num_inputs = kForwardInputs, .num_outputs = 3, .infer = infer_shard,
                             .reference = reference_shard_statistics,
                             .gradient = {.none = "it is a part of linear cross entropy over ranks, whose gradient is linear_cross_entropy_shard_backward"},
                             .kernel = kernel_shard_statistics,  // as linear_cross_entropy
                             .sharding = [](const OpCall& call) { return sharding_of_inputs(call) + " -> m[a1] l[a1] y[a1] | |"; },
                             .recompute = Recompute::costly,
                             .cost = [](const OpCall& call) { return cost(call, 1); },
                             .samples = [] { return samples(SampleOf::shard); }, .tolerance = {.f32 = 3e-5}};
const OpDef kGradients{.name = "linear_cross_entropy_backward", .num_inputs = kBackwardInputs, .num_outputs = 3, .infer = infer_gradients,
                       .reference = reference_gradients,
                       .gradient = {.none = "gradients of this gradient are not defined; write the loss with linear and log_softmax to have them"},
                       .kernel = kernel_gradients,  // as linear_cross_entropy
                       .sharding = sharding_of_gradients,
                       .cost = [](const OpCall& call) { return cost(call, 1 + needs(call, kNeedX) + needs(call, kNeedWeight)); },
                       .samples = [] { return samples(SampleOf::gradients); }, .tolerance = {.f32 = 1e-4}};

}  // namespace tutti::chunked_loss
