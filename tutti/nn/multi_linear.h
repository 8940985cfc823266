// Linear layers that read one value together: query, key and value projections, gate and up projections.
//
//   const auto [gate, up] = nn::multi_linear(x, gate_proj, up_proj);
//
// The results and the gradients of the weights are those of gate_proj(x) and up_proj(x). The gradient of x is one
// contraction over the output features of all layers (matmul_sum), where that of separate calls is a sum of rounded
// products: it is cheaper, more exact, and under tensor parallelism one partial sum travels instead of one per layer.
// Its bits differ from those of separate calls, so a model uses either the one or the other everywhere. Layers whose
// operand is no single matrix (LinearOperand::matrix) multiply on their own, and their gradients of x are added.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tutti/nn/linear.h"

namespace tutti::nn {

// Shapes: x [..., in]; layers with weights [out_i, in] -> [..., out_i] each. The hooks of every layer run as if it were
// called: all hooks before, then the products, then all hooks after, each in the order of the layers. From 1 to 12
// layers. UsageError as for Linear, and when hooks give the layers inputs that are not one tensor.
std::vector<Tensor> multi_linear(const Tensor& x, std::span<const Linear* const> layers);

// Not inlined, so that traces and errors name the line of the caller (module_call.h).
template <class... L>
[[gnu::noinline]] std::array<Tensor, sizeof...(L)> multi_linear(const Tensor& x, const Child<L>&... layers) {
  const Linear* const list[] = {&*layers...};
  const std::vector<Tensor> results = multi_linear(x, std::span<const Linear* const>(list));
  std::array<Tensor, sizeof...(L)> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = results[i];
  return all;
}

}  // namespace tutti::nn
