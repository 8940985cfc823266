// The backward engine.
#pragma once

#include <span>
#include <vector>

#include "tutti/autograd/tape.h"

namespace tutti {

struct BackwardOptions {
  bool retain_graph = false;  // keep saved tensors for another backward
  bool create_graph = false;  // record backward itself, for gradients of gradients
  // Store the gradient of each use of a leaf separately (in forward order) instead of adding it to the leaf's grad:
  // uses are combined over virtual shards first and added last (numerics contract, N5). See take_uses().
  bool per_use = false;
};

// Computes the gradients of `output` for every leaf below it and adds them to the leaves' grads.
// `cotangent`: of the shape of `output`; may be undefined for a one-element output (then 1).
void backward(const Tensor& output, const Tensor& cotangent = {}, const BackwardOptions& options = {});

// The gradients of `outputs` for `inputs` (leaves or results), which are returned and stored nowhere. An input that
// the outputs do not depend on gets an undefined tensor.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> cotangents = {}, const BackwardOptions& options = {});

// The per-use gradients collected by backward({.per_use = true}), in forward order; the leaf forgets them.
std::vector<Tensor> take_uses(const Tensor& leaf);

namespace autograd {

// Backward through a recomputed checkpoint region, called from inside a running backward: gradients of `inputs` come
// back in `input_grads`, those of captured leaves and values join the running backward under their own places.
void backward_region(const Tensor& output, const Tensor& cotangent, const Order& region, std::span<const Tensor> inputs,
                     std::span<Tensor> input_grads);

// A cotangent on its way to a value from before a part of the tape.
struct Outgoing {
  Edge to;
  Tensor grad;
};
// Backward from inside a running one, through the nodes recorded since `start` only: what they send to leaves and to older
// nodes is returned use by use, in forward order, and stored nowhere. The nodes keep what they saved.
std::vector<Outgoing> backward_since(const Order& start, std::span<const Tensor> outputs, std::span<const Tensor> cotangents);
// For a node that learns only in its run() whom it has cotangents for: sends one as if `to` were its edge number `use`.
void send_from(const Node& node, int use, const Edge& to, Tensor grad);

}  // namespace autograd
}  // namespace tutti
