// Sums over virtual shards by one binary tree that is keyed by shard number (numerics contract, N5).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/autograd/use_sink.h"
#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// Adds one f32 tensor per shard by the tree: two sums are added when together they are a node. Shards come in any
// order, and the sums that are left are the maximal nodes of those that came.
class NodeSums {
 public:
  struct Node {
    comm::ShardNode shards;
    Tensor values;
    bool is_own = false;  // nobody else has a handle on its memory
  };
  // Adds the tensor of `shard`, each of which comes once. The tensor is overwritten only if `is_own` says that nobody
  // else uses its memory, or if this holds the only handle on it when its sibling comes.
  void push(int64_t shard, Tensor values, bool is_own = false);
  // Ascending.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node> take() { return std::exchange(nodes_, {}); }
  // Removes and returns the tensor of one shard that has not been added to another. InternalError if it has.
  Tensor take(int64_t shard);

 private:
  std::vector<Node> nodes_;
};

// The sums of the gradients of several shards.
struct GradientNode {
  comm::ShardNode shards;
  UseGradients uses;
};

// How many uses of each parameter have arrived from one shard. A shard that runs is one of these; several may run at
// once.
struct ShardArrivals {
  struct Count {
    size_t arrived = 0;
    size_t base = 0;  // of those, before the backward that runs
  };
  int64_t shard = -1;
  std::vector<Count> counts;  // by parameter
};

// Takes the uses of a list of parameters from several shards, whose backwards may be interleaved, and adds each to its
// node as soon as it arrives. One thread at a time.
class GradientTree final : public UseSink {
 public:
  // `numbers` are those by which errors name the parameters; empty: their places in the list.
  explicit GradientTree(const std::vector<Tensor>& leaves, std::vector<size_t> numbers = {});

  // A shard of which nothing has arrived.
  ShardArrivals begin_shard(int64_t shard) const;
  // A use from that shard, as UseSink::use(). UsageError naming parameter and shard when its size or its place in
  // forward order is not that of the same use of another shard: the terms of a sum must be gradients of the same use.
  void use(ShardArrivals& shard, int32_t leaf, int32_t position, Tensor grad);
  void finished(ShardArrivals& shard, int32_t leaf);
  // Call when every use of the shard has arrived. UsageError naming parameter and shard when it has not as many
  // uses as another shard of the step.
  void end(const ShardArrivals& shard);

  // The same for shards that come one after another: the uses that this sink gets from now on belong to `shard`.
  void begin(int64_t shard) { current_ = begin_shard(shard); }
  void end();
  int32_t index_of(const Tensor& leaf) const override;
  void use(int32_t leaf, int32_t position, Tensor grad) override;
  void finished(int32_t leaf) override;

  // Returns the sizes of each use of each parameter in this step, in forward order.
  UseLayout layout() const;
  // Whether no use has arrived in this step.
  bool is_empty() const;
  // Whether every use of a parameter has arrived from as many shards. False until the first shard of the step has
  // ended, which says how many uses there are.
  bool is_complete(size_t parameter, size_t shards) const;
  // Moves the sums of one parameter to `nodes`, the maximal nodes of this step, and makes the nodes if there are none.
  void take(size_t parameter, std::vector<GradientNode>& nodes);
  // Removes and returns the maximal nodes, in ascending order, with their uses in forward order. The shards that follow
  // must have the same uses.
  std::vector<GradientNode> take();
  // The same for one shard, whose gradients have not been added to those of another.
  UseGradients take_shard(int64_t shard);
  // Ends the step: the next shard may have other uses.
  void clear();

 private:
  struct Use {
    NodeSums sums;
    Extents sizes;
    int32_t position;  // with which it arrived
    int64_t shard;     // from which it arrived first
  };
  struct Leaf {
    std::vector<Use> uses;        // in the order in which they arrive
    std::vector<size_t> forward;  // the same by number, in forward order
    size_t expected = 0;          // their number in the first shard that has ended
    size_t delivered = 0;         // from all shards
  };
  size_t number(size_t index) const { return numbers_.empty() ? index : numbers_[index]; }

  std::vector<Leaf> of_leaf_;
  const std::vector<Tensor> held_;  // keeps the leaves, and so their identity
  const std::vector<size_t> numbers_;
  std::unordered_map<const TensorImpl*, int32_t> index_;
  std::optional<int64_t> ended_;  // the first shard that has ended
  ShardArrivals current_;
};

}  // namespace tutti::parallel
