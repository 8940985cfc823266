// Adds the gradients of virtual shards over ranks: bytes move, and the owner of each slice adds by the tree (numerics contract, N5).
#pragma once

#include <optional>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/gradient_tree.h"

namespace tutti::parallel {

// Consecutive shards [begin, end).
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
// Returns the shards of `rank` when it runs consecutive ones, which are [floor(rank V / R), floor((rank + 1) V / R)). UsageError
// unless 1 <= ranks <= shards and 0 <= rank < ranks.
ShardRange shards_of_rank(int64_t shards, int rank, int ranks);

// The nodes of each rank that runs shards_of_rank().
comm::NodePlan consecutive_shards(int64_t shards, int ranks);
// Adds the nodes of all ranks by the tree, and then the uses of each parameter: one f32 gradient per parameter, undefined where it
// has no use. `group` may be null for one rank. UsageError when `nodes` are not those of this rank in the plan.
std::vector<Tensor> reduce_gradients(std::vector<GradientNode> nodes, const comm::NodePlan& plan, comm::ProcessGroup* group);

// The exchange after every round: in round j the shards jR, jR + 1, ... are run, one per rank. The owner of a slice takes it of
// every shard of the round, unsummed, and adds siblings as they complete. Every member makes the same calls.
class RoundExchange {
 public:
  // `group` must outlive this.
  explicit RoundExchange(comm::ProcessGroup& group) : group_(group) {}
  // This rank's gradients of its shard of the round; null: there are `shards` in all, and none is left for it in this round.
  void add(UseGradients* uses, int64_t shards);
  // After the last round: one f32 gradient per parameter, on every rank.
  std::vector<Tensor> finish();

 private:
  comm::ProcessGroup& group_;
  NodeStack sums_;  // of this rank's slice
  int64_t next_shard_ = 0, numel_ = 0;
  std::vector<std::vector<Extents>> layout_;
};

}  // namespace tutti::parallel
