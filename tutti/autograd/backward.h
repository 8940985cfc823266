// The backward engine.
#pragma once

#include <span>
#include <vector>

#include "tutti/autograd/tape.h"

namespace tutti {

class UseSink;

struct BackwardOptions {
  bool retain_graph = false;  // keep the saved tensors, so that backward() can run again
  bool create_graph = false;  // record the backward itself, for gradients of gradients
  // Store the gradient of each use of a leaf separately, in forward order, instead of adding it to the leaf's grad.
  // This lets each use be summed over virtual shards before the uses are added (numerics contract, N5). Hooks of the
  // leaf wait for the finished gradient, see autograd::apply_leaf_hooks(). See take_uses().
  bool per_use = false;
  // Gets the gradient of each use of its leaves as soon as it is computed; the grad of these leaves stays as it is.
  // Must outlive the backward and every function compiled from it. See use_sink.h.
  UseSink* sink = nullptr;
};

// Computes the gradient of `output` for every leaf that it depends on and adds it to the leaf's grad, which is f32 for
// f32, bf16 and f16 leaves. A leaf is finished, and its hooks run, as soon as its last use has sent its gradient:
// leaves are finished in descending place of that use in the program, and by the number of the input where one op uses
// several. `cotangent` has the shape of `output`; for an output with one element it may be undefined, which means 1.
// UsageError when a backward has already released what this one needs, or a tensor saved for it was written in place.
void backward(const Tensor& output, const Tensor& cotangent = {}, const BackwardOptions& options = {});

// The gradients of `outputs` with respect to `inputs`, which may be leaves or results of ops. They are returned and not
// added to any grad. The gradient of an input that the outputs do not depend on is undefined, and that of an f32, bf16
// or f16 leaf is f32, as backward() has it.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> cotangents = {}, const BackwardOptions& options = {});

// Returns the per-use gradients collected by backward(..., {.per_use = true}), in forward order, and clears them in the
// leaf.
std::vector<Tensor> take_uses(const Tensor& leaf);

namespace autograd {

// Whether a backward runs on this thread.
bool is_backward_running();

// Backward through a recomputed checkpoint region, called from inside a running backward. The gradients of `inputs` are
// returned in `input_grads`; those of captured leaves and values join the running backward at their own places in
// forward order.
void backward_region(const Tensor& output, const Tensor& cotangent, const Order& region, std::span<const Tensor> inputs,
                     std::span<Tensor> input_grads);

// A cotangent for a value that was computed before a given part of the tape.
struct Outgoing {
  Edge to;
  Tensor grad;
};
// Backward from inside a running one, only through the nodes recorded since `start`. The cotangents that these nodes
// send to leaves and to older nodes are returned use by use, in forward order, and not stored. The nodes keep their
// saved tensors.
std::vector<Outgoing> backward_since(const Order& start, std::span<const Tensor> outputs,
                                     std::span<const Tensor> cotangents);
// For a node that learns the targets of its cotangents only in run(): sends one as if `to` were its edge number `use`.
// The node names what it may send to in Node::captured.
void send_from(const Node& node, int use, const Edge& to, Tensor grad);

// Applies the hooks of `leaf` to its finished gradient and returns the result. For training loops that finish gradients
// themselves.
Tensor apply_leaf_hooks(const Tensor& leaf, Tensor grad);
// Adds `grad` to that of `leaf` and calls its post-accumulate hooks.
void accumulate_grad(const Tensor& leaf, const Tensor& grad);

}  // namespace autograd
}  // namespace tutti
