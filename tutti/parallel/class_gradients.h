// The gradients of one class of parameters (parameter_class.h) in a step: the tree over the shards of this rank, and
// how the ranks of the class add theirs. For Shards, which has one per class.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/optim/grad_norm.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/parallel/parameter_class.h"
#include "tutti/parallel/schedule.h"

namespace tutti::parallel {

// One thread at a time.
class ClassGradients {
 public:
  // `numbers` are those by which errors name the parameters. UsageError as for Shards.
  ClassGradients(const ParameterClass& parameters, std::vector<size_t> numbers, Schedule schedule, Overlap overlap);
  ClassGradients(const ClassGradients&) = delete;  // exchanges refer to members
  ClassGradients& operator=(const ClassGradients&) = delete;

  // The leaves of the tree that are this rank's, one for each of its shards in the order in which it runs them.
  const std::vector<int64_t>& nodes() const { return mine_; }
  const std::vector<size_t>& numbers() const { return numbers_; }
  GradientTree& tree() { return tree_; }
  const EarlyBuckets& early_buckets() const { return early_; }
  // Collective where buckets travel under backward: they get as many lanes.
  void set_max_input_buffers(size_t count);

  // Shard `local` of this rank has brought what `arrivals` says; shards come in any order. Local, but that with
  // Overlap::backward ranks begin their exchange when only one shard is missing.
  void add(size_t local, const ShardArrivals& arrivals);
  // With every_round, exchanges the next round, whose shard was added. Collective; elsewhere it does nothing.
  void meet_round();
  // With every_round, makes this rank's collectives of a last round in which it has no shard.
  void skip();
  // Throws a UsageError with that text, in the place of the next round where ranks meet in rounds, so that all have it.
  void refuse(const std::string& why);
  // Starts the buckets whose parameters are finished, without waiting for anybody.
  void start_ready();
  // Call after all shards of this rank were added; collective. Returns the sum of those of all ranks: one gradient per
  // parameter, or this rank's part of it, placed as its master, after its hooks. Adds the terms of their norm to
  // `norm`, which is empty before, and `loss` over ranks.
  std::vector<Tensor> finish(ExactSum& loss, optim::GradNorm& norm);
  // Drops the step, and tells the ranks that expect calls of this one; see Shards::abandon().
  void abandon(std::string_view why = "");

 private:
  template <class Meeting>
  void meet(uint64_t layout, const Meeting& meeting);
  void compare_layouts(uint64_t layout) const;
  void check_layouts(std::span<const int64_t> layouts) const;
  std::vector<comm::ProcessGroup*> calls_left();
  void reset();
  bool overlaps() const;
  bool lacks_a_round() const;  // with every_round
  void begin_exchange();
  void pass_gate();
  void take_parameters(const GradientBucket& bucket);
  std::vector<Tensor> exchange();
  Tensor finished(size_t parameter, Tensor gradient) const;

  comm::ProcessGroup* const group_;
  const int ranks_;
  const int64_t count_;
  const std::vector<int64_t> mine_;
  const std::vector<Tensor> parameters_;
  const std::vector<size_t> numbers_;
  const GradientPlacements placements_;
  // The mesh of the ranks that divide parameters which are distributed tensors (tensor_parallel.h); null: none do.
  const dist::Mesh mesh_;
  size_t max_input_buffers_ = kInputBuffers;
  std::vector<comm::ProcessGroup*> lanes_;  // in which buckets travel under backward
  comm::NodePlan plan_;                     // of once_a_step
  std::optional<RoundExchange> rounds_;     // of every_round, when there are several ranks
  // The exchange under backward: it begins when `gate_`, in which the ranks tell each other their layouts, has ended.
  const Overlap overlap_;
  std::optional<StepExchange> exchange_;
  std::vector<GradientNode> nodes_;
  Tensor layouts_;
  comm::Work gate_;
  bool is_through_ = false, has_parted_ = false;  // the gate has ended, well or in an error of all ranks
  bool is_closing_ = false;                       // the gradients are added; the call that ends the step is not made
  std::vector<bool> is_taken_;                    // by parameter, whether its sums have moved from the tree to nodes_
  GradientTree tree_;
  std::vector<std::optional<ShardArrivals>> arrivals_;  // of the shards of this rank that were added
  size_t added_ = 0;
  size_t next_round_ = 0;
  bool has_skipped_ = false;
  EarlyBuckets early_;
};

}  // namespace tutti::parallel
