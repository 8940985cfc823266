// Balancing the loads of experts without an auxiliary loss: a bias moves the choices of the router.
// Source: Wang et al. 2024, "Auxiliary-loss-free load balancing strategy for mixture-of-experts", as TorchTitan does
// it.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/tensor/tensor.h"

namespace tutti::optim {

// Changes the bias of each expert, f32 [E], in place: with d = coefficient * sign(mean(tokens) - tokens), bias += d -
// mean(d). An expert with fewer tokens than the mean is chosen more often from then on. The counts are those of a whole
// step, over all virtual shards and ranks; they are integers, so the result does not depend on the order in which they
// were added. A coefficient of 0 changes nothing. UsageError when the bias is not a dense f32 tensor of one dim with an
// element for each count.
void balance_experts(const Tensor& bias, std::span<const int64_t> tokens, double coefficient);

}  // namespace tutti::optim
