// Sums over virtual shards by one binary tree that is keyed by shard number (numerics contract, N5).
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tutti/autograd/use_sink.h"
#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// Adds one f32 tensor per shard, like a binary counter whose digits are keyed by shard number: two sums are added when
// together they are a node. Holds the maximal nodes of the shards that were pushed.
class NodeStack {
 public:
  struct Node {
    comm::ShardNode shards;
    Tensor values;
    bool is_own = false;  // nobody else has a handle on its memory
  };
  // Adds the tensor of `shard`; shards come in ascending order. The tensor is overwritten only if `is_own` says that
  // nobody else uses its memory, or if this holds the only handle on it when its sibling comes.
  void push(int64_t shard, Tensor values, bool is_own = false);
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node> take() { return std::exchange(nodes_, {}); }

 private:
  std::vector<Node> nodes_;
};

// The sums of the gradients of several shards.
struct GradientNode {
  comm::ShardNode shards;
  UseGradients uses;
};

// Takes the uses of a list of parameters shard by shard, and adds each to its node as soon as it arrives. Used by one
// thread.
class GradientTree final : public UseSink {
 public:
  explicit GradientTree(const std::vector<Tensor>& leaves);

  int32_t index_of(const Tensor& leaf) const override;
  void use(int32_t leaf, int32_t position, Tensor grad) override;
  void finished(int32_t leaf) override;

  // Uses that arrive from now on belong to `shard`. Shards come in ascending order.
  void begin(int64_t shard);
  // Call when every use of the shard has arrived. UsageError naming parameter and shard when its uses differ from those
  // of the first shard of the step in number, size or order: the terms of a sum must be gradients of the same use.
  void end();
  // Returns the sizes of each use of each parameter in this step, in forward order.
  UseLayout layout() const;
  // Whether no use has arrived in this step.
  bool is_empty() const;
  // Whether as many uses of a parameter have arrived in this shard as in the first one.
  bool is_complete(size_t parameter) const { return of_leaf_[parameter].arrived == of_leaf_[parameter].uses.size(); }
  // Called after each finished(); null: nothing.
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }
  // Moves the sums of one parameter to `nodes`, the maximal nodes of this step, which get them if they are empty.
  void take(size_t parameter, std::vector<GradientNode>& nodes);
  // Removes and returns the maximal nodes, in ascending order, with their uses in forward order. The shards that follow
  // must have the same uses.
  std::vector<GradientNode> take();
  // Ends the step: the next shard may have other uses.
  void clear();

 private:
  struct Use {
    NodeStack sums;
    Extents sizes;
    int32_t position;  // with which it arrived
  };
  struct Leaf {
    std::vector<Use> uses;        // in the order in which they arrive
    std::vector<size_t> forward;  // the same by number, in forward order
    size_t arrived = 0;           // in this shard
    size_t base = 0;              // of those, before the backward that runs
  };
  std::vector<const TensorImpl*> leaves_;
  std::vector<Leaf> of_leaf_;
  std::vector<Tensor> held_;  // keeps the leaves, and so their identity
  int64_t shard_ = -1, first_ = -1;
  std::function<void()> listener_;
};

}  // namespace tutti::parallel
