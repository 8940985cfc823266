// Gradients of a part of a program that is compiled: its leaves use by use, and its outputs as values that the rest
// goes on with.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/autograd/tape.h"

namespace tutti::autograd {

// Gradients of `outputs` with respect to leaves: those of `inputs` complete, with their hooks, and those of each use of
// `leaves` by itself, in forward order. The cotangent of an output stands behind those of its consumers, which come
// earlier in the program than whatever uses the output later.
struct LeafUse {
  Tensor grad;
  std::pair<Order, int> place;  // in forward order: the consumer, and the number of its input
};
struct SplitGradients {
  std::vector<Tensor> inputs;                // undefined: nothing depends on it
  std::vector<std::vector<LeafUse>> leaves;  // per leaf and use
  std::vector<int32_t> consumers;            // per output: how many cotangents its own was added to
};
SplitGradients split_grad(std::span<const Tensor> outputs, std::span<const Tensor> cotangents,
                          std::span<const Tensor> inputs, std::span<const Tensor> leaves);

}  // namespace tutti::autograd
