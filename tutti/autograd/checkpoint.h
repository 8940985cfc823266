// Activation checkpointing: run a region without a tape and compute it again during backward.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// fn(inputs), whose intermediate tensors are not kept. The recomputation gives the same bits: kernels are deterministic
// and random numbers depend on keys; anonymous ones are those of the forward. Leaves that `fn` captures (parameters) get their gradients in
// the same order as without checkpointing. `fn` must be a pure function of its inputs and captured tensors.
Tensor checkpoint(std::function<Tensor(std::span<const Tensor>)> fn, std::span<const Tensor> inputs);

}  // namespace tutti
