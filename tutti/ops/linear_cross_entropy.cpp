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

bool wants_gradient(const Tensor& t) { return (t.stages() & mask_of(StagePlace::autograd) & ~removed_stages()) != 0; }

// ---- the loss from the statistics of rows, all [N, 1] ---------------------------------------------------------------

struct RowStatistics {
  Tensor nll, lse, mixed;
};
RowStatistics statistics_of(const Tensor inputs[], const LossAttrs& attrs) {
  Tensor out[kLossOutputs];
  apply(kLoss, {inputs, kForwardInputs}, Attrs::of(attrs), out);
  return {out[kRowLoss], out[kRowLse], out[kRowMixed]};
}

Tensor with_z_loss(const Tensor& loss, const Tensor& lse, double z_loss) {
  return z_loss > 0 ? add(loss, mul(mul(lse, lse), z_loss)) : loss;
}

// class_weight: [N, 1], of each row's label; undefined: 1.
Tensor loss_of_labels(const RowStatistics& rows, const Tensor& class_weight, const LinearCrossEntropyOptions& o,
                      SymInt V) {
  Tensor loss = class_weight.defined() ? mul(rows.nll, class_weight) : rows.nll;
  if (const double s = o.label_smoothing; s > 0) loss = add(mul(loss, 1 - s), truediv(mul(rows.mixed, s), V));
  return with_z_loss(loss, rows.lse, o.z_loss);
}

Tensor total_of(const Tensor& column) { return sum(reshape(column, {-1}), {.dims = {0}, .leaf = token_grain()}); }

// By what the loss of each row is multiplied, [N, 1], and by what the sum is divided, []; undefined: by nothing.
struct Scale {
  Tensor factor, total;
};
// weight_of_rows(): [N, 1] or [1, 1], what rows count in a mean.
template <class WeightOfRows>
Scale scale_of(const LinearCrossEntropyOptions& o, DType compute, WeightOfRows weight_of_rows) {
  Scale scale;
  if (o.row_weight.defined()) scale.factor = as_column(cast(o.row_weight, compute));
  if (o.reduction == LossReduction::mean) {
    const Tensor weight = weight_of_rows();
    scale.total = total_of(scale.factor.defined() ? mul(scale.factor, weight) : weight);
  }
  return scale;
}

Tensor reduced(Tensor loss, const Scale& scale, LossReduction reduction, const Shape& sizes) {
  if (scale.factor.defined()) loss = mul(loss, scale.factor);
  if (reduction == LossReduction::none) return reshape(loss, sizes);
  return scale.total.defined() ? truediv(total_of(loss), scale.total) : total_of(loss);
}

// ---- gradients in the forward ---------------------------------------------------------------------------------------

// The cotangents [N, 1] that a backward with cotangent 1 brings to the losses of rows: the gradients of mul and sum, in
// the order in which reduced() and loss_of_labels() are walked back.
Tensor guessed_cotangents(const Tensor& x, const Scale& scale, const Tensor& class_weight, DType compute) {
  const StageScope constants(0, mask_of(StagePlace::autograd));
  Tensor g = full_beside(x, {}, 1.0, compute);
  if (scale.total.defined()) g = truediv(g, scale.total);
  g = expand(reshape(g, {1, 1}), {x.size(0), 1});
  if (scale.factor.defined()) g = mul(g, scale.factor);
  return class_weight.defined() ? mul(g, class_weight) : g;
}

// The losses of rows; their gradients are computed and wait for the backward.
Tensor losses_with_gradients(const Tensor inputs[], const Tensor& cotangents, const LossAttrs& attrs) {
  std::vector<Tensor> all(inputs, inputs + kForwardInputs);
  all.push_back(cotangents);
  Tensor out[4];
  apply(kLossWithGradients, all, Attrs::of(attrs), out);
  return out[0];
}

// ---- arguments ------------------------------------------------------------------------------------------------------

void check_target(const Tensor& target, const Shape& rows, SymInt V) {
  Shape with_classes = rows;
  with_classes.push_back(V);
  TUTTI_CHECK(is_integral(target.dtype()) ? target.sizes() == rows : is_float(target) && target.sizes() == with_classes,
              "{}: target is {}; expected labels, integers {}, or probabilities, floats {}", kName, describe(target),
              rows, with_classes);
}

void check_weights(const LinearCrossEntropyOptions& o, const Shape& rows, SymInt V, bool probabilities) {
  TUTTI_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1 && o.z_loss >= 0,
              "{}: label_smoothing = {}, z_loss = {}; expected label_smoothing in [0, 1] and z_loss 0 or more", kName,
              o.label_smoothing, o.z_loss);
  TUTTI_CHECK(!probabilities || (o.label_smoothing == 0 && !o.class_weight.defined()),
              "{}: label_smoothing and class_weight are for labels; put them into the target probabilities", kName);
  TUTTI_CHECK(!o.class_weight.defined() || (is_float(o.class_weight) && o.class_weight.sizes() == Shape{V}),
              "{}: class_weight is {}; expected floats [{}]", kName,
              o.class_weight.defined() ? describe(o.class_weight) : "", V);
  TUTTI_CHECK(!o.row_weight.defined() || (is_float(o.row_weight) && o.row_weight.sizes() == rows),
              "{}: row_weight is {}; expected floats {}", kName, o.row_weight.defined() ? describe(o.row_weight) : "",
              rows);
}

void check_in_forward(const LinearCrossEntropyOptions& o, const Tensor& target) {
  if (o.gradients != LossGradients::in_forward) return;
  TUTTI_CHECK(is_integral(target.dtype()) && o.label_smoothing == 0 && o.z_loss == 0,
              "{}: gradients = in_forward with target {}, label_smoothing = {}, z_loss = {}; it is for labels without "
              "label_smoothing and z_loss; "
              "leave gradients = recomputed here",
              kName, describe(target), o.label_smoothing, o.z_loss);
  TUTTI_CHECK(o.reduction != LossReduction::none,
              "{}: gradients = in_forward with reduction = none: the forward cannot know the cotangent of each row; "
              "use mean or sum, with row_weight for factors of rows, or gradients = recomputed",
              kName);
  TUTTI_CHECK(o.chunk_classes == 0,
              "{}: gradients = in_forward with chunk_classes = {}: all classes of a row are held until its gradient is "
              "computed; "
              "leave chunk_classes 0, and bound chunk_rows or max_bytes",
              kName, o.chunk_classes);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                            const LinearCrossEntropyOptions& o) {
  LossAttrs attrs = checked_attrs(input, weight, o, kName);
  Shape sizes = input.sizes();
  sizes.pop_back();
  const SymInt V = weight.size(0);
  const bool probabilities = is_floating(target.dtype());
  check_target(target, sizes, V);
  check_weights(o, sizes, V, probabilities);
  check_in_forward(o, target);
  attrs.needs = static_cast<uint8_t>((wants_gradient(input) ? kNeedX : 0) | (wants_gradient(weight) ? kNeedWeight : 0) |
                                     (o.bias.defined() && wants_gradient(o.bias) ? kNeedBias : 0));

  const DType compute = compute_dtype(promote(input.dtype(), weight.dtype()));
  const Tensor x = input.ndim() == 2 ? input : reshape(input, {-1, input.size(-1)});
  const Tensor bias = or_none(o.bias, x, {0}, compute);
  if (probabilities) {
    attrs.ignore_index = -1;  // no row has it
    const Tensor mix = target.ndim() == 2 ? target : reshape(target, {-1, V});
    const Tensor inputs[kForwardInputs] = {x, weight, full_beside(x, {x.size(0), 1}, 0.0, DType::i64), bias, mix};
    const RowStatistics rows = statistics_of(inputs, attrs);
    return reduced(with_z_loss(rows.mixed, rows.lse, o.z_loss),
                   scale_of(o, compute, [&] { return full_beside(x, {x.size(0), 1}, 1.0, compute); }), o.reduction,
                   sizes);
  }
  attrs.ignore_index = o.ignore_index;
  Tensor mix;
  if (o.label_smoothing > 0)
    mix = o.class_weight.defined() ? reshape(o.class_weight, {1, V}) : full_beside(x, {1, V}, 1.0, compute);
  const Tensor labels = as_column(target);
  const Tensor inputs[kForwardInputs] = {x, weight, labels, bias, or_none(mix, x, {0, 0}, compute)};
  const Tensor ignored = eq(cast(labels, DType::i64), o.ignore_index);
  const bool in_forward = o.gradients == LossGradients::in_forward && attrs.needs != 0;
  const auto weight_of_labels = [&]() -> Tensor {
    if (!o.class_weight.defined()) return {};
    Tensor classes = where(ignored, int64_t{0}, cast(labels, DType::i64));
    if (in_forward) classes = remainder(classes, V);  // the op comes later, and is what says which labels are wrong
    const Tensor of_labels = index_select(o.class_weight, 0, reshape(classes, {-1}));
    return as_column(cast(of_labels, compute));
  };
  const auto scale_by = [&](const Tensor& class_weight) {
    return scale_of(o, compute, [&] {
      return where(ignored, 0.0, class_weight.defined() ? class_weight : full_beside(x, {1, 1}, 1.0, compute));
    });
  };
  if (in_forward) {
    const Tensor class_weight = weight_of_labels();
    const Scale scale = scale_by(class_weight);
    const Tensor losses = losses_with_gradients(inputs, guessed_cotangents(x, scale, class_weight, compute), attrs);
    return reduced(class_weight.defined() ? mul(losses, class_weight) : losses, scale, o.reduction, sizes);
  }
  const RowStatistics rows = statistics_of(inputs, attrs);  // before the weights, of which a wrong label has none
  const Tensor class_weight = weight_of_labels();
  return reduced(loss_of_labels(rows, class_weight, o, V), scale_by(class_weight), o.reduction, sizes);
}

}  // namespace tutti

TUTTI_OPS(linear_cross_entropy, &::tutti::chunked_loss::kLoss, &::tutti::chunked_loss::kGradients,
          &::tutti::chunked_loss::kLossWithGradients, &::tutti::chunked_loss::kTakenGradients)
