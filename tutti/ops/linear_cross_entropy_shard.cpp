#include "tutti/ops/linear_cross_entropy_shard.h"

#include "tutti/ops/cat.h"
#include "tutti/ops/chunked_loss/arguments.h"
#include "tutti/ops/chunked_loss/ops.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/reshape.h"

namespace tutti {
namespace {

using namespace chunked_loss;  // NOLINT: the words of its calls

LossAttrs attrs_for(const Tensor& x, const Tensor& weight, int64_t first_class, const LinearShardOptions& options,
                    const char* name) {
  LossAttrs attrs = checked_attrs(x, weight, options, name);
  TUTTI_CHECK(x.ndim() == 2, "{}: input is {}; expected [N, F]", name, describe(x));
  attrs.first_class = first_class;
  attrs.partial = true;
  return attrs;
}

void check_labels(const Tensor& labels, const Tensor& x, const char* name) {
  TUTTI_CHECK(labels.ndim() == 1 && labels.size(0) == x.size(0) && is_integral(labels.dtype()),
              "{}: labels are {}; expected integers [{}]", name, describe(labels), x.size(0));
}
void check_row_values(const Tensor& t, const Tensor& x, const char* what, const char* name) {
  TUTTI_CHECK(t.ndim() == 1 && t.size(0) == x.size(0) && is_float(t), "{}: {} is {}; expected floats [{}]", name, what,
              describe(t), x.size(0));
}

DType sums_in(const Tensor& x, const Tensor& weight) { return compute_dtype(promote(x.dtype(), weight.dtype())); }

}  // namespace

ClassStatistics linear_class_statistics(const Tensor& input, const Tensor& weight, const Tensor& labels,
                                        int64_t first_class, const LinearShardOptions& options) {
  constexpr const char* kName = "linear_class_statistics";
  const LossAttrs attrs = attrs_for(input, weight, first_class, options, kName);
  check_labels(labels, input, kName);
  const DType compute = sums_in(input, weight);
  const Tensor inputs[] = {input, weight, as_column(labels), or_none(options.bias, input, {0}, compute),
                           or_none({}, input, {0, 0}, compute)};
  Tensor out[3];
  apply(kShardStatistics, inputs, Attrs::of(attrs), out);
  return {reshape(out[0], {-1}), reshape(out[1], {-1}), reshape(out[2], {-1})};
}

LinearShardGradients linear_cross_entropy_shard_backward(const Tensor& input, const Tensor& weight, const Tensor& grad,
                                                         const Tensor& labels, const ClassStatistics& all,
                                                         int64_t first_class, const LinearShardNeeds& need,
                                                         const LinearShardOptions& options) {
  constexpr const char* kName = "linear_cross_entropy_shard_backward";
  LossAttrs attrs = attrs_for(input, weight, first_class, options, kName);
  check_labels(labels, input, kName);
  check_row_values(grad, input, "grad", kName);
  check_row_values(all.maximum, input, "the maximum", kName);
  check_row_values(all.rest, input, "the rest", kName);
  TUTTI_CHECK(!need.bias || options.bias.defined(), "{}: the gradient of the bias is asked for, and there is no bias",
              kName);
  attrs.needs =
      static_cast<uint8_t>((need.input ? kNeedX : 0) | (need.weight ? kNeedWeight : 0) | (need.bias ? kNeedBias : 0));
  const DType compute = sums_in(input, weight);
  const Tensor none = or_none({}, input, {0, 1}, compute);
  const Tensor inputs[] = {input,
                           weight,
                           as_column(labels),
                           or_none(options.bias, input, {0}, compute),
                           or_none({}, input, {0, 0}, compute),
                           stack({all.maximum, all.rest}, 1),
                           as_column(grad),
                           none,
                           none};
  Tensor out[3];
  apply(kGradients, inputs, Attrs::of(attrs), out);
  LinearShardGradients gradients;
  if (need.input) gradients.input = out[0];
  if (need.weight) gradients.weight = out[1];
  if (need.bias) gradients.bias = out[2];
  return gradients;
}

}  // namespace tutti

TUTTI_OPS(linear_cross_entropy_shard, &::tutti::chunked_loss::kShardStatistics)
