#include "tutti/ops/linear_cross_entropy.h"

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/chunked_loss/arguments.h"
#include "tutti/ops/chunked_loss/ops.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using namespace chunked_loss;  // NOLINT: the words of its calls

constexpr const char* kName = "linear_cross_entropy";

bool wants_gradient(const Tensor& t) { return (t.stages() & mask_of(StageBit::autograd) & ~removed_stages()) != 0; }

// ---- the loss from the statistics of rows, all [N, 1] ---------------------------------------------------------------

struct RowStatistics {
  Tensor nll, lse, mix;
};
RowStatistics statistics_of(const Tensor inputs[], const LossAttrs& attrs) {
  Tensor out[3];
  apply(kLoss, {inputs, kForwardInputs}, Attrs::of(attrs), out);
  return {out[0], out[1], out[2]};
}

Tensor with_z_loss(const Tensor& loss, const Tensor& lse, double z_loss) { return z_loss > 0 ? add(loss, mul(mul(lse, lse), z_loss)) : loss; }

// class_weight: [N, 1], of each row's label; undefined: 1.
Tensor loss_of_labels(const RowStatistics& rows, const Tensor& class_weight, const LinearCrossEntropyOptions& o, SymInt V) {
  Tensor loss = class_weight.defined() ? mul(rows.nll, class_weight) : rows.nll;
  if (const double s = o.label_smoothing; s > 0) {
    const DType dtype = loss.dtype();
    const Tensor total = o.class_weight.defined() ? sum(cast(o.class_weight, dtype)) : mul(full({}, 1.0, dtype), V);
    loss = add(mul(loss, 1 - s), truediv(mul(sub(mul(rows.lse, total), rows.mix), s), V));
  }
  return with_z_loss(loss, rows.lse, o.z_loss);
}

// total p lse - sum p x
Tensor loss_of_probabilities(const RowStatistics& rows, const Tensor& probabilities, const LinearCrossEntropyOptions& o) {
  const Tensor total = sum(probabilities, {.dims = {1}, .keepdim = true, .dtype = rows.lse.dtype()});
  return with_z_loss(sub(mul(rows.lse, total), rows.mix), rows.lse, o.z_loss);
}

Tensor total_of(const Tensor& column) { return sum(reshape(column, {-1}), {.dims = {0}, .leaf = token_grain()}); }

// weight_of_rows(): [N, 1] or [1, 1], what rows count in a mean.
template <class WeightOfRows>
Tensor reduced(Tensor loss, const LinearCrossEntropyOptions& o, const Shape& sizes, WeightOfRows weight_of_rows) {
  const Tensor factor = o.row_weight.defined() ? as_column(cast(o.row_weight, loss.dtype())) : Tensor{};
  if (factor.defined()) loss = mul(loss, factor);
  if (o.reduction == LossReduction::none) return reshape(loss, sizes);
  if (o.reduction == LossReduction::sum) return total_of(loss);
  const Tensor weight = weight_of_rows();
  return truediv(total_of(loss), total_of(factor.defined() ? mul(factor, weight) : weight));
}

// ---- arguments ------------------------------------------------------------------------------------------------------

void check_target(const Tensor& target, const Shape& rows, SymInt V) {
  Shape with_classes = rows;
  with_classes.push_back(V);
  TUTTI_CHECK(is_integral(target.dtype()) ? target.sizes() == rows : is_float(target) && target.sizes() == with_classes,
              "{}: target is {}; expected labels, integers {}, or probabilities, floats {}", kName, describe(target), rows, with_classes);
}

void check_weights(const LinearCrossEntropyOptions& o, const Shape& rows, SymInt V, bool probabilities) {
  TUTTI_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1 && o.z_loss >= 0,
              "{}: label_smoothing = {}, z_loss = {}; expected label_smoothing in [0, 1] and z_loss 0 or more", kName, o.label_smoothing, o.z_loss);
  TUTTI_CHECK(!probabilities || (o.label_smoothing == 0 && !o.class_weight.defined()),
              "{}: label_smoothing and class_weight are for labels; put them into the target probabilities", kName);
  TUTTI_CHECK(!o.class_weight.defined() || (is_float(o.class_weight) && o.class_weight.sizes() == Shape{V}), "{}: class_weight is {}; expected floats [{}]",
              kName, o.class_weight.defined() ? describe(o.class_weight) : "", V);
  TUTTI_CHECK(!o.row_weight.defined() || (is_float(o.row_weight) && o.row_weight.sizes() == rows), "{}: row_weight is {}; expected floats {}", kName,
              o.row_weight.defined() ? describe(o.row_weight) : "", rows);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target, const LinearCrossEntropyOptions& o) {
  LossAttrs attrs = checked_attrs(input, weight, o, kName);
  Shape sizes = input.sizes();
  sizes.pop_back();
  const SymInt V = weight.size(0);
  const bool probabilities = is_floating(target.dtype());
  check_target(target, sizes, V);
  check_weights(o, sizes, V, probabilities);
  attrs.needs = static_cast<uint8_t>((wants_gradient(input) ? kNeedX : 0) | (wants_gradient(weight) ? kNeedWeight : 0) |
                                     (o.bias.defined() && wants_gradient(o.bias) ? kNeedBias : 0));

  const DType compute = compute_dtype(promote(input.dtype(), weight.dtype()));
  const Tensor x = input.ndim() == 2 ? input : reshape(input, {-1, input.size(-1)});
  const Tensor bias = or_none(o.bias, {0}, compute);
  if (probabilities) {
    attrs.ignore_index = -1;  // no row has it
    const Tensor mix = target.ndim() == 2 ? target : reshape(target, {-1, V});
    const Tensor inputs[kForwardInputs] = {x, weight, full({x.size(0), 1}, 0.0, DType::i64), bias, mix};
    return reduced(loss_of_probabilities(statistics_of(inputs, attrs), mix, o), o, sizes, [&] { return full({x.size(0), 1}, 1.0, compute); });
  }
  attrs.ignore_index = o.ignore_index;
  Tensor mix;
  if (o.label_smoothing > 0) mix = o.class_weight.defined() ? reshape(o.class_weight, {1, V}) : expand(full({1, 1}, 1.0, compute), {1, V});
  const Tensor labels = as_column(target);
  const Tensor inputs[kForwardInputs] = {x, weight, labels, bias, or_none(mix, {0, 0}, compute)};
  const RowStatistics rows = statistics_of(inputs, attrs);
  const Tensor ignored = eq(labels, o.ignore_index);
  Tensor class_weight;
  if (o.class_weight.defined()) {
    const Tensor of_labels = index_select(o.class_weight, 0, reshape(where(ignored, int64_t{0}, cast(labels, DType::i64)), {-1}));
    class_weight = as_column(cast(of_labels, compute));
  }
  return reduced(loss_of_labels(rows, class_weight, o, V), o, sizes,
                 [&] { return where(ignored, 0.0, class_weight.defined() ? class_weight : full({1, 1}, 1.0, compute)); });
}

}  // namespace tutti

TUTTI_OPS(linear_cross_entropy, &::tutti::chunked_loss::kLoss, &::tutti::chunked_loss::kGradients)
