// Sums over virtual shards by one binary tree that is keyed by shard number (numerics contract, N5).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/autograd/use_sink.h"
#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// Adds one f32 tensor per shard, like a binary counter whose digits are keyed by shard number: two sums are added when together
// they are a node. It keeps the maximal nodes of what was pushed.
class NodeStack {
 public:
  struct Node {
    comm::ShardNode shards;
    Tensor values;
    bool is_own = false;  // nobody else has a handle on its memory
  };
  // The tensor of `shard`, which comes after all that were pushed. It is written only when `is_own` says that it serves no other.
  void push(int64_t shard, Tensor values, bool is_own = false);
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node> take() { return std::exchange(nodes_, {}); }

 private:
  std::vector<Node> nodes_;
};

// The gradients of several shards, added.
struct GradientNode {
  comm::ShardNode shards;
  UseGradients uses;
};

// Takes the uses of a list of parameters shard by shard, and adds each to its node as soon as it arrives. Used by one thread.
class GradientTree final : public UseSink {
 public:
  explicit GradientTree(const std::vector<Tensor>& leaves);

  int32_t index_of(const Tensor& leaf) const override;
  void use(int32_t leaf, int32_t position, Tensor grad) override;
  void finished(int32_t leaf) override;

  // Uses that arrive from now on belong to `shard`. Shards ascend.
  void begin(int64_t shard);
  // Every use of the shard has arrived. UsageError naming parameter and shard when its uses are not as many, or not as large, or do not
  // come in the order, of those of the step's first shard: what is added must be the same thing.
  void end();
  // The sizes of each use of each parameter in this step, in forward order.
  UseLayout layout() const;
  // Takes out the maximal nodes, ascending, whose uses are in forward order. Shards that follow must have the same uses.
  std::vector<GradientNode> take();
  // The step is over: the next shard may have other uses.
  void clear();

 private:
  struct Use {
    NodeStack sums;
    Extents sizes;
    int32_t position;  // with which it arrived
  };
  struct Leaf {
    std::vector<Use> uses;         // in the order in which they arrive
    std::vector<size_t> forward;   // the same by number, in forward order
    size_t arrived = 0;            // in this shard
    size_t base = 0;               // of those, before the backward that runs
  };
  std::vector<const TensorImpl*> leaves_;
  std::vector<Leaf> of_leaf_;
  std::vector<Tensor> held_;  // keeps the leaves, and so their identity
  int64_t shard_ = -1, first_ = -1;
};

}  // namespace tutti::parallel
