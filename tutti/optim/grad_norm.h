// The global gradient norm and clipping by it.
#pragma once

#include <span>

#include "tutti/core/exact_sum.h"
#include "tutti/tensor/tensor.h"

namespace tutti::optim {

// The square sum of all elements, order-free (numerics contract, N7): equal bits for every way the gradients are cut.
ExactSum square_sum(std::span<const Tensor> grads);
// Square root of its value, as f32: what is logged and compared with max_norm.
float norm_of(const ExactSum& squares);
// What gradients are multiplied by so that their norm is at most max_norm: min(1, max_norm / (norm + 1e-6)).
// max_norm <= 0 turns clipping off. Source: Pascanu et al. 2013, with PyTorch's epsilon.
double clip_scale(float norm, double max_norm);

}  // namespace tutti::optim
