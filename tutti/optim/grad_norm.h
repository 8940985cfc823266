// The global gradient norm and clipping by it.
#pragma once

#include <span>

#include "tutti/core/exact_sum.h"
#include "tutti/tensor/tensor.h"

namespace tutti::optim {

// The sum of the squares of all elements. It does not depend on the order of terms (numerics contract, N7), so the bits
// are the same however the gradients are sharded.
ExactSum square_sum(std::span<const Tensor> grads);
// The gradient norm: the square root of the sum, as f32.
float norm_of(const ExactSum& squares);
// The factor for the gradients that limits their norm to max_norm: min(1, max_norm / (norm + 1e-6)).
// max_norm <= 0 turns clipping off. Source: Pascanu et al. 2013, with PyTorch's epsilon.
double clip_scale(float norm, double max_norm);

}  // namespace tutti::optim
