// Elementwise losses of two tensors. Each runs as one kernel in the forward and one in the backward.
//
// Shapes: input and target broadcast to one shape; the result has that shape with LossReduction::none, else []. Dtypes:
// floats. The sum uses the tree of numerics contract N3; the mean divides it by the number of elements (NaN when there
// are none).
#pragma once

#include "tutti/ops/loss_reduction.h"
#include "tutti/tensor/tensor.h"

namespace tutti::nn {

// (input - target)^2.
Tensor mse_loss(const Tensor& input, const Tensor& target, LossReduction reduction = LossReduction::mean);

// |input - target|; where they are equal, the gradient is 0.
Tensor l1_loss(const Tensor& input, const Tensor& target, LossReduction reduction = LossReduction::mean);

// With d = |input - target|: d^2 / 2 where d < delta, else delta (d - delta / 2). UsageError unless delta > 0. Source:
// Huber 1964.
Tensor huber_loss(const Tensor& input, const Tensor& target, double delta = 1.0,
                  LossReduction reduction = LossReduction::mean);

// huber_loss with delta = beta, divided by beta; l1_loss when beta = 0. UsageError when beta < 0.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta = 1.0,
                      LossReduction reduction = LossReduction::mean);

// -(pos_weight target log sigmoid(logits) + (1 - target) log(1 - sigmoid(logits))), computed without overflow.
// pos_weight broadcasts; undefined means 1. Max error in f32, of the loss and of each of the two terms of its gradient:
// 4 ULP, down to denormals.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, const Tensor& pos_weight = {},
                                        LossReduction reduction = LossReduction::mean);

// target (log target - input), where input holds log-probabilities; 0 where the target is 0. With log_target, target
// holds log-probabilities as well. The mean divides by the number of elements; for the mean over the batch, use sum and
// divide by the batch size.
Tensor kl_div(const Tensor& input, const Tensor& target, bool log_target = false,
              LossReduction reduction = LossReduction::mean);

}  // namespace tutti::nn
