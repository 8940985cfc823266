#include "tutti/nn/loss.h"

#include "tutti/graph/fused.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::nn {
namespace {

Tensor reduced(const Tensor& losses, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::none:
      return losses;
    case LossReduction::sum:
      return sum(losses);
    case LossReduction::mean:
      return mean(losses);
  }
  return losses;
}

void check_floats(const char* name, const Tensor& input, const Tensor& target) {
  TUTTI_CHECK(is_floating(input.dtype()) && is_floating(target.dtype()), "{}: {} and {}; expected floats, cast them",
              name, describe(input), describe(target));
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, LossReduction reduction) {
  check_floats("mse_loss", input, target);
  static const auto& loss = fused("mse_loss", [](const Tensor& x, const Tensor& t, LossReduction r) {
    const Tensor d = sub(x, t);
    return reduced(mul(d, d), r);
  });
  return loss(input, target, reduction);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, LossReduction reduction) {
  check_floats("l1_loss", input, target);
  static const auto& loss =
      fused("l1_loss", [](const Tensor& x, const Tensor& t, LossReduction r) { return reduced(abs(sub(x, t)), r); });
  return loss(input, target, reduction);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, double delta, LossReduction reduction) {
  check_floats("huber_loss", input, target);
  TUTTI_CHECK(delta > 0, "huber_loss: delta is {}; expected a number above 0", delta);
  static const auto& loss = fused("huber_loss", [](const Tensor& x, const Tensor& t, double width, LossReduction r) {
    const Tensor d = abs(sub(x, t));
    return reduced(where(lt(d, width), mul(mul(d, d), 0.5), mul(sub(d, width / 2), width)), r);
  });
  return loss(input, target, delta, reduction);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta, LossReduction reduction) {
  TUTTI_CHECK(beta >= 0, "smooth_l1_loss: beta is {}; expected 0 or more", beta);
  if (beta == 0) return l1_loss(input, target, reduction);
  check_floats("smooth_l1_loss", input, target);
  static const auto& loss =
      fused("smooth_l1_loss", [](const Tensor& x, const Tensor& t, double width, LossReduction r) {
        const Tensor d = abs(sub(x, t));
        return reduced(where(lt(d, width), mul(mul(d, d), 0.5 / width), sub(d, width / 2)), r);
      });
  return loss(input, target, beta, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, const Tensor& pos_weight,
                                        LossReduction reduction) {
  check_floats("binary_cross_entropy_with_logits", logits, target);
  static const auto& loss = fused(
      "binary_cross_entropy_with_logits", [](const Tensor& x, const Tensor& t, const Tensor& weight, LossReduction r) {
        // (1 - t) softplus(x) + w t softplus(-x), where softplus(x) = max(x, 0) + tail. Nothing cancels, not in the
        // gradient either: the side of the larger sigmoid has factor 0 where the target says so.
        const Tensor negative = sub(1.0, t), positive = weight.defined() ? mul(weight, t) : t,
                     tail = log1p(exp(neg(abs(x))));
        const Tensor linear = add(mul(negative, maximum(x, 0.0)), mul(positive, maximum(neg(x), 0.0)));
        return reduced(add(linear, weight.defined() ? mul(add(negative, positive), tail) : tail), r);
      });
  return loss(logits, target, pos_weight, reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, bool log_target, LossReduction reduction) {
  check_floats("kl_div", input, target);
  static const auto& loss = fused("kl_div", [](const Tensor& x, const Tensor& t, bool is_log, LossReduction r) {
    if (is_log) return reduced(mul(exp(t), sub(t, x)), r);
    const Tensor some = gt(t, 0.0);  // the gradient must not meet the infinity of log(0)
    const Tensor safe = where(some, t, 1.0);
    return reduced(where(some, mul(t, sub(log(safe), x)), 0.0), r);
  });
  return loss(input, target, log_target, reduction);
}

}  // namespace tutti::nn
