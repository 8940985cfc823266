#include "tutti/parallel/gradient_exchange.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::parallel {
namespace {

using comm::NodePlan;
using comm::NodeSlice;
using comm::ShardNode;

// Uses are added last, in forward order.
std::vector<Tensor> add_uses(const UseGradients& sums) {
  std::vector<Tensor> grads;
  for (const auto& uses : sums) {
    Tensor sum = uses.empty() ? Tensor{} : uses[0];
    for (size_t u = 1; u < uses.size(); ++u) sum = tutti::add(sum, uses[u]);
    grads.push_back(sum);
  }
  return grads;
}

void add_use(Tensor& sum, Tensor use) {
  if (sum.defined()) add_(sum, use);
  else sum = std::move(use);
}

Tensor part_of(const Tensor& flat, NodeSlice slice) {
  return flat.view_as({slice.end - slice.begin}, {1}, flat.offset() + slice.begin);
}

// Each rank of the group brings its slice of `whole`.
void gather_slices(comm::ProcessGroup& group, const Tensor& whole, const Tensor& slice, uint64_t agreement) {
  std::vector<Tensor> slices;
  for (int r = 0; r < group.size(); ++r)
    slices.push_back(part_of(whole, comm::slice_of(whole.numel(), r, group.size())));
  group.all_gather_v(slices, slice, {.agreement = agreement});
}

// The group whose ranks keep the same of a bucket, and share the adding; null: this rank adds all that it keeps.
comm::ProcessGroup* adding_group(const GradientBucket& bucket, comm::ProcessGroup& all,
                                 const GradientPlacements& placements) {
  return bucket.is_cut() ? placements.replica_group() : &all;
}

// Completes `kept`, the memory of what this rank keeps of a bucket, with the slices of those who keep the same.
void hand_out(const GradientBucket& bucket, comm::ProcessGroup& all, const GradientPlacements& placements,
              const Tensor& kept, const Tensor& slice, uint64_t agreement) {
  if (comm::ProcessGroup* group = adding_group(bucket, all, placements)) gather_slices(*group, kept, slice, agreement);
  else if (kept.raw_data() != slice.raw_data()) copy_(kept, slice);
}

// Where ranks bring equal subtrees in their order, adding by halving over ranks is the rest of the tree.
bool is_tree_over_ranks(const NodePlan& plan) {
  const int64_t size = plan[0].empty() ? 0 : plan[0][0].end - plan[0][0].begin;
  for (size_t r = 0; r < plan.size(); ++r) {
    const auto begin = static_cast<int64_t>(r) * size;
    if (plan[r] != std::vector<ShardNode>{{begin, begin + size}}) return false;
  }
  return std::has_single_bit(plan.size());
}

}  // namespace

ShardRange shards_of_rank(int64_t shards, int rank, int ranks) {
  TUTTI_CHECK(ranks >= 1 && ranks <= shards,
              "{} data-parallel ranks cannot share {} virtual shard{}: each needs at least one; start at most {} ranks "
              "or raise numerics.virtual_shards",
              ranks, shards, shards == 1 ? "" : "s", shards);
  TUTTI_CHECK(rank >= 0 && rank < ranks, "shards_of_rank: rank {} of {} ranks; expected 0 to {}", rank, ranks,
              ranks - 1);
  return {rank * shards / ranks, (rank + 1) * shards / ranks};
}

NodePlan consecutive_shards(int64_t shards, int ranks) {
  NodePlan plan;
  for (int r = 0; r < ranks; ++r) {
    const ShardRange range = shards_of_rank(shards, r, ranks);
    plan.push_back(comm::maximal_nodes(range.begin, range.end));
  }
  return plan;
}

std::vector<Tensor> reduce_gradients(std::vector<GradientNode> nodes, const NodePlan& plan, comm::ProcessGroup* group,
                                     const GradientPlacements& placements, size_t max_input_buffers) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  const std::vector<ShardNode>& mine = plan[group == nullptr ? 0 : static_cast<size_t>(group->rank())];
  const auto same = [](const GradientNode& node, const ShardNode& planned) { return node.shards == planned; };
  const auto check = [&] {
    TUTTI_CHECK(!mine.empty() && std::equal(nodes.begin(), nodes.end(), mine.begin(), mine.end(), same),
                "reduce_gradients: the gradients of this rank end with shard {} and make {} node{}; the plan expects "
                "shards {} to {} in {}",
                nodes.empty() ? -1 : nodes.back().shards.end - 1, nodes.size(), nodes.size() == 1 ? "" : "s",
                mine.empty() ? 0 : mine.front().begin, mine.empty() ? -1 : mine.back().end - 1, mine.size());
  };
  if (group == nullptr) check();
  else group->checked(comm::CollectiveKind::all_to_all, check);
  const bool is_alone = group == nullptr || group->size() == 1;
  TUTTI_CHECK(!is_alone || nodes.size() == 1,
              "reduce_gradients: one rank brings {} nodes; expected a number of shards that is a power of two",
              nodes.size());
  if (is_alone) return add_uses(nodes[0].uses);
  return StepExchange(*group, plan, layout_of(nodes[0].uses), placements, false, max_input_buffers).finish(nodes);
}

StepExchange::StepExchange(comm::ProcessGroup& group, const NodePlan& plan, UseLayout layout,
                           const GradientPlacements& placements, bool starts_early, size_t max_input_buffers,
                           std::vector<comm::ProcessGroup*> lanes)
    : group_(group),
      plan_(plan),
      layout_(std::move(layout)),
      placements_(placements),
      agreement_(hash_of(layout_)),
      buckets_(buckets_of(layout_, placements)),
      is_tree_(is_tree_over_ranks(plan)),
      starts_early_(starts_early),
      max_input_buffers_(max_input_buffers),
      lanes_(lanes.empty() ? std::vector{&group} : std::move(lanes)),
      finished_(layout_, placements) {}

bool StepExchange::gathers(const GradientBucket& bucket) const {
  return bucket.is_cut() ? placements_.replica_group() != nullptr : !is_tree_;
}

bool StepExchange::has_room() {
  const auto is_done = [](const UnderWay& bucket) {
    return std::all_of(bucket.works.begin(), bucket.works.end(),
                       [](const comm::Work& work) { return work.is_done(); }) &&
           std::all_of(bucket.reductions.begin(), bucket.reductions.end(),
                       [](const comm::NodeReduction& r) { return r.is_done(); });
  };
  if (under_way_.size() >= max_input_buffers_ && is_done(under_way_.front())) make_room();
  return under_way_.size() < max_input_buffers_;
}

void StepExchange::make_room() {
  const TraceSpan span(TraceCategory::annotation, "FSDP::post_backward_rs_wait");
  const auto begin = std::chrono::steady_clock::now();
  ++use_.waits;
  finish_oldest();
  use_.waited += std::chrono::steady_clock::now() - begin;
}

// Where all keep all, in a tree over ranks, all_reduce() adds in the right order; else the owners of slices add nodes
// and uses, and hand out one sum whatever the number of uses.
void StepExchange::start(std::vector<GradientNode>& nodes) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  comm::ProcessGroup& lane = lane_of(started_);
  const GradientBucket& bucket = buckets_[started_++];
  const comm::CallOptions options{.async = starts_early_, .agreement = agreement_};
  wholes_.push_back(finished_.memory(bucket));
  under_way_.push_back({});
  use_.most = std::max(use_.most, under_way_.size());
  UnderWay& mine = under_way_.back();
  const NodeSlice own = bucket.slice_of(group_.rank(), group_.size());
  for (size_t use = 0; use < bucket.uses; ++use) {
    if (is_tree_ && !bucket.is_cut()) {
      mine.sums.push_back(use == 0 ? wholes_.back() : Tensor::empty({bucket.numel}));
      take_use(nodes[0].uses, bucket, use, placements_, mine.sums.back());
      mine.works.push_back(lane.all_reduce(mine.sums.back(), {}, options));
    } else {
      std::vector<Tensor> flat;
      for (GradientNode& node : nodes) flat.push_back(take_use(node.uses, bucket, use, placements_));
      const bool is_whole = use == 0 && bucket.is_cut() && !gathers(bucket);
      mine.sums.push_back(is_whole ? wholes_.back() : Tensor::empty({own.end - own.begin}));
      mine.reductions.emplace_back(lane, mine.sums.back(), flat, plan_, options, bucket.slices);
    }
  }
}

void StepExchange::finish_oldest() {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  UnderWay mine = std::move(under_way_.front());
  under_way_.pop_front();
  const GradientBucket& bucket = buckets_[slices_.size()];
  for (const comm::Work& work : mine.works) work.wait();
  for (comm::NodeReduction& reduction : mine.reductions) reduction.finish();
  Tensor sum;
  for (Tensor& of_use : mine.sums) add_use(sum, std::move(of_use));
  slices_.push_back(is_tree_ && !bucket.is_cut() ? Tensor{} : sum);
}

void StepExchange::hand_out_next() {
  const size_t b = handed_out_++;
  if (const Tensor slice = std::exchange(slices_[b], {}); slice.defined())
    hand_out(buckets_[b], group_, placements_, wholes_[b], slice, agreement_);
}

std::vector<Tensor> StepExchange::finish(std::vector<GradientNode>& nodes) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  while (next() != nullptr) {
    while (under_way_.size() >= max_input_buffers_) make_room();
    start(nodes);
    if (starts_early_) continue;
    finish_oldest();
    hand_out_next();
  }
  {
    const TraceSpan span(TraceCategory::annotation, "FSDP::post_backward_final_wait");
    const auto begin = std::chrono::steady_clock::now();
    while (!under_way_.empty()) finish_oldest();
    use_.waited_at_end = std::chrono::steady_clock::now() - begin;
  }
  while (handed_out_ < buckets_.size()) hand_out_next();
  return finished_.take();
}

std::vector<comm::ProcessGroup*> StepExchange::calls_left() const {
  size_t rounds = 1;
  for (const auto& nodes : plan_) rounds = std::max(rounds, nodes.size());
  std::vector<comm::ProcessGroup*> left;
  for (size_t b = started_; b < buckets_.size(); ++b) left.insert(left.end(), buckets_[b].uses * rounds, &lane_of(b));
  for (size_t b = handed_out_; b < buckets_.size(); ++b) {
    if (gathers(buckets_[b])) left.push_back(adding_group(buckets_[b], group_, placements_));
  }
  return left;
}

void RoundExchange::begin(const UseGradients& uses) {
  layout_ = layout_of(uses);
  agreement_ = hash_of(layout_);
  buckets_ = buckets_of(layout_, placements_);
  for (const GradientBucket& bucket : buckets_) sums_.emplace_back(bucket.uses);
}

void RoundExchange::add(UseGradients* uses, int64_t shards) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  if (uses != nullptr && next_shard_ == 0) begin(*uses);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t use = 0; use < buckets_[b].uses; ++use) take_round(buckets_[b], uses, use, shards, sums_[b][use]);
  }
  next_shard_ += group_.size();
}

// This rank's slice of one use in a bucket, of every shard of the round.
void RoundExchange::take_round(const GradientBucket& bucket, UseGradients* uses, size_t use, int64_t shards,
                               NodeSums& sums) {
  const int ranks = group_.size();
  const NodeSlice own = bucket.slice_of(group_.rank(), ranks);
  const Tensor flat = uses == nullptr ? Tensor::empty({0}) : take_use(*uses, bucket, use, placements_);
  std::vector<Tensor> taken, given;
  for (int r = 0; r < ranks; ++r) {
    given.push_back(uses == nullptr ? flat : part_of(flat, bucket.slice_of(r, ranks)));
    taken.push_back(Tensor::empty({next_shard_ + r < shards ? own.end - own.begin : 0}));
  }
  group_.all_to_all(taken, given, {.agreement = agreement_});
  for (int r = 0; r < ranks && next_shard_ + r < shards; ++r)
    sums.push(next_shard_ + r, std::move(taken[static_cast<size_t>(r)]), true);
}

std::vector<Tensor> RoundExchange::finish() {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  FinishedGradients finished(layout_, placements_);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Tensor sum;
    for (NodeSums& stack : sums_[b]) {
      std::vector<NodeSums::Node> roots = stack.take();
      TUTTI_ASSERT(roots.size() == 1, "the shards of a step make {} nodes", roots.size());
      add_use(sum, std::move(roots[0].values));
    }
    hand_out(buckets_[b], group_, placements_, finished.memory(buckets_[b]), sum, agreement_);
  }
  std::vector<Tensor> gradients = finished.take();
  clear();
  return gradients;
}

void RoundExchange::clear() {
  layout_.clear();
  buckets_.clear();
  sums_.clear();
  next_shard_ = 0;
}

}  // namespace tutti::parallel
