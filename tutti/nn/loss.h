// Losses between two tensors of one shape, element by element. Each is one kernel forward and one backward.
//
// Shapes: input and target equal or broadcast against each other -> that shape with LossReduction::none, else []. Dtypes: floats. The sum runs
// in the tree of numerics contract N3; the mean divides by the number of elements (0 / 0 = NaN of none).
#pragma once

#include "tutti/ops/loss_reduction.h"
#include "tutti/tensor/tensor.h"

namespace tutti::nn {

// (input - target)^2.
Tensor mse_loss(const Tensor& input, const Tensor& target, LossReduction reduction = LossReduction::mean);

// |input - target|; the gradient where they are equal is 0.
Tensor l1_loss(const Tensor& input, const Tensor& target, LossReduction reduction = LossReduction::mean);

// With d = |input - target|: d^2 / 2 where d < delta, else delta (d - delta / 2). Error: delta is not above 0. Source: Huber 1964.
Tensor huber_loss(const Tensor& input, const Tensor& target, double delta = 1.0, LossReduction reduction = LossReduction::mean);

// huber_loss / beta; l1_loss at beta = 0. Error: beta is below 0.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta = 1.0, LossReduction reduction = LossReduction::mean);

// -(target log sigmoid(logits) + (1 - target) log(1 - sigmoid(logits))), without overflow. pos_weight: factor of the first term, broadcast;
// undefined: 1.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, const Tensor& pos_weight = {},
                                        LossReduction reduction = LossReduction::mean);

// target (log target - input), input a logarithm; 0 where the target is 0. log_target: the target is a logarithm as well. The mean divides by the
// number of elements; divide a sum by the batch for the mean over it.
Tensor kl_div(const Tensor& input, const Tensor& target, bool log_target = false, LossReduction reduction = LossReduction::mean);

}  // namespace tutti::nn
