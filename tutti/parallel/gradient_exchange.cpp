#include "tutti/parallel/gradient_exchange.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/inplace.h"

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

Tensor part_of(const Tensor& flat, NodeSlice slice) { return flat.view_as({slice.end - slice.begin}, {1}, flat.offset() + slice.begin); }

// Each rank brings its slice of the sum.
void gather(comm::ProcessGroup& group, const Tensor& whole, const Tensor& slice, uint64_t agreement) {
  std::vector<Tensor> slices;
  for (int r = 0; r < group.size(); ++r) slices.push_back(part_of(whole, comm::slice_of(whole.numel(), r, group.size())));
  group.all_gather_v(slices, slice, {.agreement = agreement});
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

// The sums over ranks and uses, bucket by bucket. In a tree over ranks all_reduce() adds in the right order; else the owners of slices
// add nodes and uses, and hand out one sum whatever the number of uses.
std::vector<Tensor> reduce_over_ranks(std::vector<GradientNode> nodes, const NodePlan& plan, comm::ProcessGroup& group) {
  const UseLayout layout = layout_of(nodes[0].uses);
  const uint64_t agreement = hash_of(layout);
  const bool is_tree = is_tree_over_ranks(plan);
  FinishedGradients finished(layout);
  for (const GradientBucket& bucket : buckets_of(layout)) {
    const Tensor whole = finished.memory(bucket);
    const NodeSlice own = comm::slice_of(bucket.numel, group.rank(), group.size());
    Tensor sum;
    for (size_t use = 0; use < bucket.uses; ++use) {
      if (is_tree) {
        const Tensor of_use = use == 0 ? whole : Tensor::empty({bucket.numel});
        take_use(nodes[0].uses, bucket, use, of_use);
        group.all_reduce(of_use, {}, {.agreement = agreement});
        add_use(sum, of_use);
      } else {
        std::vector<Tensor> flat;
        for (GradientNode& node : nodes) flat.push_back(take_use(node.uses, bucket, use));
        const Tensor of_use = Tensor::empty({own.end - own.begin});
        comm::reduce_nodes(group, of_use, flat, plan, agreement);
        add_use(sum, of_use);
      }
    }
    if (!is_tree) gather(group, whole, sum, agreement);
  }
  return finished.take();
}

}  // namespace

ShardRange shards_of_rank(int64_t shards, int rank, int ranks) {
  TUTTI_CHECK(ranks >= 1 && ranks <= shards,
              "{} data-parallel ranks cannot share {} virtual shard{}: each needs at least one; start at most {} ranks or raise numerics.virtual_shards", ranks,
              shards, shards == 1 ? "" : "s", shards);
  TUTTI_CHECK(rank >= 0 && rank < ranks, "shards_of_rank: rank {} of {} ranks; expected 0 to {}", rank, ranks, ranks - 1);
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

std::vector<Tensor> reduce_gradients(std::vector<GradientNode> nodes, const NodePlan& plan, comm::ProcessGroup* group) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  const std::vector<ShardNode>& mine = plan[group == nullptr ? 0 : static_cast<size_t>(group->rank())];
  const auto same = [](const GradientNode& node, const ShardNode& planned) { return node.shards == planned; };
  const auto check = [&] {
    TUTTI_CHECK(!mine.empty() && std::equal(nodes.begin(), nodes.end(), mine.begin(), mine.end(), same),
                "reduce_gradients: the gradients of this rank end with shard {} and make {} node{}; the plan expects shards {} to {} in {}",
                nodes.empty() ? -1 : nodes.back().shards.end - 1, nodes.size(), nodes.size() == 1 ? "" : "s", mine.empty() ? 0 : mine.front().begin,
                mine.empty() ? -1 : mine.back().end - 1, mine.size());
  };
  if (group == nullptr) check();
  else group->checked(comm::CollectiveKind::all_to_all, check);
  const bool is_alone = group == nullptr || group->size() == 1;
  TUTTI_CHECK(!is_alone || nodes.size() == 1, "reduce_gradients: one rank brings {} nodes; expected a number of shards that is a power of two", nodes.size());
  return is_alone ? add_uses(nodes[0].uses) : reduce_over_ranks(std::move(nodes), plan, *group);
}

void RoundExchange::begin(const UseGradients& uses) {
  layout_ = layout_of(uses);
  agreement_ = hash_of(layout_);
  buckets_ = buckets_of(layout_);
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
void RoundExchange::take_round(const GradientBucket& bucket, UseGradients* uses, size_t use, int64_t shards, NodeStack& sums) {
  const int ranks = group_.size();
  const NodeSlice own = comm::slice_of(bucket.numel, group_.rank(), ranks);
  const Tensor flat = uses == nullptr ? Tensor::empty({0}) : take_use(*uses, bucket, use);
  std::vector<Tensor> taken, given;
  for (int r = 0; r < ranks; ++r) {
    given.push_back(uses == nullptr ? flat : part_of(flat, comm::slice_of(bucket.numel, r, ranks)));
    taken.push_back(Tensor::empty({next_shard_ + r < shards ? own.end - own.begin : 0}));
  }
  group_.all_to_all(taken, given, {.agreement = agreement_});
  for (int r = 0; r < ranks && next_shard_ + r < shards; ++r) sums.push(next_shard_ + r, std::move(taken[static_cast<size_t>(r)]), true);
}

std::vector<Tensor> RoundExchange::finish() {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  FinishedGradients finished(layout_);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Tensor sum;
    for (NodeStack& stack : sums_[b]) {
      std::vector<NodeStack::Node> roots = stack.take();
      TUTTI_ASSERT(roots.size() == 1, "the shards of a step make {} nodes", roots.size());
      add_use(sum, std::move(roots[0].values));
    }
    gather(group_, finished.memory(buckets_[b]), sum, agreement_);
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
