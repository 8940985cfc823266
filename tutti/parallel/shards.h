// Virtual shards: the unit in which forward and backward of a training loop run (numerics contract, N5).
//
// The rows of a step are V shards of equal size, in order, and R data-parallel ranks share them out, 1 <= R <= V. Gradients
// are kept per use of a parameter and added by one binary tree over the shards, first inside a rank, then over ranks; the uses
// of a parameter are added last, in forward order. So losses and gradients have the same bits for every R:
//
//   Shards shards(8, &group);
//   for each step:
//     for (int64_t s = shards.mine().begin; s < shards.mine().end; ++s) {
//       ... forward of shard s gives losses, backward(losses, scale, {.per_use = true}) leaves uses
//       shards.add(losses, uses_of(parameters));
//     }
//     ShardSums sums = shards.finish();  // the same on every rank
//
// One object belongs to one thread of a rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/comm/reduce_nodes.h"
#include "tutti/core/exact_sum.h"

namespace tutti::parallel {

// Consecutive shards [begin, end).
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
// Returns the shards of `rank`, which are [floor(rank V / R), floor((rank + 1) V / R)). UsageError unless
// 1 <= ranks <= shards and 0 <= rank < ranks.
ShardRange shards_of_rank(int64_t shards, int rank, int ranks);

// Per parameter, the f32 gradient of each of its uses, in forward order.
using UseGradients = std::vector<std::vector<Tensor>>;

// The gradients that backward(..., {.per_use = true}) left with the parameters; they are taken away.
UseGradients take_gradients(const std::vector<Tensor>& parameters);

// Adds the gradients of consecutive shards in the order of the tree, like a binary counter whose digits are keyed by shard
// number: two sums are added when together they are a node.
class GradientTree {
 public:
  explicit GradientTree(int64_t first_shard = 0) : first_(first_shard), next_(first_shard) {}
  // The gradients of the next shard.
  void push(UseGradients uses);
  // The sums of the maximal nodes, ascending. The tree is empty afterwards and begins again at its first shard.
  struct Node {
    comm::ShardNode shards;
    UseGradients uses;
  };
  std::vector<Node> take();

 private:
  int64_t first_, next_;
  std::vector<Node> stack_;
};

// The nodes of each rank that runs shards_of_rank().
comm::NodePlan consecutive_shards(int64_t shards, int ranks);
// Adds the nodes of all ranks by the tree, and then the uses of each parameter: one f32 gradient per parameter. `group` may be
// null for one rank. UsageError when `nodes` are not those of this rank in the plan.
std::vector<Tensor> reduce_gradients(std::vector<GradientTree::Node> nodes, const comm::NodePlan& plan, comm::ProcessGroup* group);

// What a step has come to, the same on every rank.
struct ShardSums {
  double loss = 0;                // the exact sum of all losses, rounded once
  std::vector<Tensor> gradients;  // one f32 tensor per parameter
};

class Shards {
 public:
  // `count` shards (a power of two) over the ranks of `group`, which must outlive this; null: one rank. UsageError.
  Shards(int64_t count, comm::ProcessGroup* group);

  int64_t count() const { return count_; }
  int ranks() const { return ranks_; }
  ShardRange mine() const { return mine_; }
  // The share of the ranks' time that shards fill when all take the same time: V / (R ceil(V / R)).
  double efficiency() const;
  // What to tell a user whose ranks wait for others; "" when none does.
  std::string advice() const;

  // The sum of `mine` over ranks, such as the number of labels that count in a step.
  int64_t sum(int64_t mine) const;
  // The losses (f32, any shape) and gradients (f32) of this rank's next shard. UsageError naming parameter and shard when the
  // uses of a parameter are not as many, or not as large, as in the shard before: what is added must be the same thing.
  void add(const Tensor& losses, UseGradients uses);
  // After all of its shards, on every rank. UsageError when some were not added and, on all ranks, when the uses of a rank differ
  // from those of rank 0.
  ShardSums finish();

 private:
  void check_uses(const UseGradients& uses);
  void check_ranks();

  const int64_t count_;
  comm::ProcessGroup* const group_;
  const int ranks_;
  const ShardRange mine_;
  const comm::NodePlan plan_;
  GradientTree tree_;
  int64_t added_ = 0;
  std::vector<std::vector<Extents>> layout_;  // sizes of each use of each parameter, of the first shard of the step
  ExactSum loss_{ExactTerm::value};
};

}  // namespace tutti::parallel
