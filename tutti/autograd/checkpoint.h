// Activation checkpointing: a region runs without recording and is recomputed during backward.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Returns fn(inputs) without keeping intermediate tensors for backward. The recomputation gives the same bits: kernels
// are deterministic, random numbers depend only on keys, and anonymous keys drawn in the forward are replayed. Leaves
// that `fn` captures (parameters) get their gradients in the same order as without checkpointing. `fn` must be a pure
// function of its inputs and captured tensors.
Tensor checkpoint(std::function<Tensor(std::span<const Tensor>)> fn, std::span<const Tensor> inputs);

}  // namespace tutti
