// Adds the gradients of virtual shards over ranks: bytes move, and the owner of each slice adds by the tree (numerics
// contract, N5).
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/comm/reduce_nodes.h"
#include "tutti/parallel/early_buckets.h"
#include "tutti/parallel/gradient_tree.h"

namespace tutti::parallel {

// Buckets whose gradients are on their way at once, by default: of each, a rank holds its own and what comes in.
inline constexpr size_t kInputBuffers = 2;

// Consecutive shards [begin, end).
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
// Returns the shards of `rank` when each rank runs consecutive ones: [floor(rank V / R), floor((rank + 1) V / R)).
// UsageError unless 1 <= ranks <= shards and 0 <= rank < ranks.
ShardRange shards_of_rank(int64_t shards, int rank, int ranks);

// Returns the nodes of each rank when every rank runs shards_of_rank().
comm::NodePlan consecutive_shards(int64_t shards, int ranks);
// Adds the nodes of all ranks by the tree, and then the uses of each parameter: one f32 gradient per parameter, or this
// rank's part of it, undefined where it has no use. `group` may be null for one rank. UsageError when `nodes` are not
// those of this rank in the plan, and on all ranks when the uses of parameters differ between them.
std::vector<Tensor> reduce_gradients(std::vector<GradientNode> nodes, const comm::NodePlan& plan,
                                     comm::ProcessGroup* group, const GradientPlacements& placements,
                                     size_t max_input_buffers = kInputBuffers);

// The exchange once a step, bucket by bucket in the order of buckets_of(). A bucket can be started as soon as backward
// has finished its parameters; its bytes then move while the rank computes. Every member makes the same calls.
class StepExchange {
 public:
  // `layout` is that of the uses on every rank, and every rank brings a node. `group`, `plan` and `placements` must
  // outlive this. With `starts_early`, sums are handed out after the last bucket has been started, so that the order of
  // calls does not depend on when a rank starts which bucket; that takes the memory of one more slice of the gradients.
  // At most `max_input_buffers`, at least 1, are under way: a queue, whose oldest ends before one more starts. Without
  // `starts_early` each ends before the next one. Buckets take turns in `lanes` of the group, as ProcessGroup::lanes()
  // gives them; none: all travel in the group itself.
  StepExchange(comm::ProcessGroup& group, const comm::NodePlan& plan, UseLayout layout,
               const GradientPlacements& placements, bool starts_early, size_t max_input_buffers,
               std::vector<comm::ProcessGroup*> lanes = {});

  // The bucket that start() starts; null after the last one.
  const GradientBucket* next() const { return started_ < buckets_.size() ? &buckets_[started_] : nullptr; }
  // The buckets that have not been started.
  std::span<const GradientBucket> left() const { return std::span(buckets_).subspan(started_); }
  // Whether another bucket can be started without waiting for one; makes room if the oldest has ended.
  bool has_room();
  // Starts the next bucket, whose gradients are taken from this rank's nodes and released.
  void start(std::vector<GradientNode>& nodes);
  // Starts what is left, waiting for room, and waits for all. Returns one f32 gradient per parameter, or this rank's
  // part of it.
  std::vector<Tensor> finish(std::vector<GradientNode>& nodes);
  // The groups of the collectives that this rank has not called yet, in their order.
  std::vector<comm::ProcessGroup*> calls_left() const;
  const InputBufferUse& input_buffers() const { return use_; }

 private:
  struct UnderWay {
    std::vector<Tensor>
        sums;  // of each use; this rank's slice, or the whole of an uncut bucket of ranks that are a tree
    std::vector<comm::Work> works;
    std::vector<comm::NodeReduction> reductions;
  };
  void make_room();
  void finish_oldest();
  void hand_out_next();
  bool gathers(const GradientBucket& bucket) const;
  comm::ProcessGroup& lane_of(size_t bucket) const { return *lanes_[bucket % lanes_.size()]; }

  comm::ProcessGroup& group_;
  const comm::NodePlan& plan_;
  const UseLayout layout_;
  const GradientPlacements& placements_;
  const uint64_t agreement_;
  const std::vector<GradientBucket> buckets_;
  const bool is_tree_, starts_early_;
  const size_t max_input_buffers_;
  const std::vector<comm::ProcessGroup*> lanes_;
  size_t started_ = 0, handed_out_ = 0;
  InputBufferUse use_;
  std::deque<UnderWay> under_way_;
  FinishedGradients finished_;
  std::vector<Tensor> wholes_,
      slices_;  // per started bucket, the memory of what is kept of its sum; per added one, this rank's slice of it
};

// The exchange after every round: in round j the shards jR, jR + 1, ... are run, one per rank. Each rank receives its
// slice of every shard of the round, unsummed, and adds siblings as they complete. Every member makes the same calls;
// UsageError on all when the uses of parameters differ between ranks.
class RoundExchange {
 public:
  // `group` and `placements` must outlive this.
  RoundExchange(comm::ProcessGroup& group, const GradientPlacements& placements)
      : group_(group), placements_(placements) {}
  // This rank's gradients of its shard of the round, which are released. Null: of the `shards` of the step none is left
  // for this rank.
  void add(UseGradients* uses, int64_t shards);
  // Call after the last round. Returns one f32 gradient per parameter, or this rank's part of it, and is ready for the
  // next step.
  std::vector<Tensor> finish();
  // Forgets the rounds of this step.
  void clear();

 private:
  void begin(const UseGradients& uses);
  void take_round(const GradientBucket& bucket, UseGradients* uses, size_t use, int64_t shards, NodeSums& sums);

  comm::ProcessGroup& group_;
  const GradientPlacements& placements_;
  int64_t next_shard_ = 0;
  UseLayout layout_;
  uint64_t agreement_ = 0;
  std::vector<GradientBucket> buckets_;
  std::vector<std::vector<NodeSums>> sums_;  // per bucket and use, of this rank's slice
};

}  // namespace tutti::parallel
