#include "tutti/ops/chunked_loss/shared_facets.h"

#include "tutti/ops/engine/facets.h"

namespace tutti::chunked_loss {

void check_labels(const OpCall& call) {
  const Tensor& labels = call[kLabels];
  const int64_t ignored = attrs_of(call).ignore_index;
  for (int64_t n = 0; n < labels.extent(0); ++n) {
    const int64_t label = facets::read_int64(labels, n * labels.strides()[0]);
    TUTTI_CHECK(
        label == ignored || (label >= 0 && label < classes_of(call)),
        "linear_cross_entropy: label {} at row {} is outside [0, {}); use ignore_index, {} here, for rows to ignore",
        label, n, classes_of(call), ignored);
  }
}

void check_constants(const VjpCall& call) {
  TUTTI_CHECK(
      !call.needs(kMix),
      "linear_cross_entropy: the target probabilities, or the class weights of label_smoothing, want a gradient, which "
      "this loss does not give; detach them, or write the loss with log_softmax");
}

uint8_t needs_of(const VjpCall& call) {
  const bool bias = call.needs(kBias) && !(call.inputs[kBias].size(0) == 0);
  return static_cast<uint8_t>((call.needs(kX) ? kNeedX : 0) | (call.needs(kWeight) ? kNeedWeight : 0) |
                              (bias ? kNeedBias : 0));
}

std::string sharding_of_inputs(const OpCall& call) {
  const bool of_rows = has_mix(call) && call[kMix].extents()[0] > 1;
  return fmt::format("#x[aF] #w[CF] #t[a1] #b[{}] #m[{}]", has_bias(call) ? "C" : "Z",
                     !has_mix(call) ? "ZY"
                     : of_rows      ? "aC"
                                    : "1C");
}

std::string sharding_of_results(const OpCall& call, char rows) {
  return fmt::format("p[{}] q[{}] r[{}]", needs(call, kNeedX) ? fmt::format("{}F", rows) : "ZY",
                     needs(call, kNeedWeight) ? "CF" : "ZY", needs(call, kNeedBias) ? "C" : "Z");
}

Cost cost_of_products(const OpCall& call, double products) {
  const double pairs = static_cast<double>(rows_of(call)) * static_cast<double>(classes_of(call));
  double bytes = 0;
  for (const Tensor& t : call.inputs) bytes += static_cast<double>(t.nbytes());
  return {2 * products * pairs * static_cast<double>(features_of(call)), bytes};
}

void add_gradient_metas(const OpCall& call, OutputMetas& out) {
  const DType dtype = computes_in(call);
  out.add(attrs_of(call).partial ? dtype : call[kX].dtype(), needs(call, kNeedX) ? call[kX].sizes() : Shape{0, 0});
  out.add(dtype, needs(call, kNeedWeight) ? call[kWeight].sizes() : Shape{0, 0});
  out.add(dtype, needs(call, kNeedBias) ? call[kBias].sizes() : Shape{0});
}

}  // namespace tutti::chunked_loss
