#include "tutti/parallel/gradient_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/ops/binary.h"

namespace tutti::parallel {
namespace {

using comm::NodePlan;
using comm::NodeSlice;
using comm::ShardNode;

int64_t numel_of(const UseGradients& parameters) {
  int64_t total = 0;
  for (const auto& uses : parameters) {
    for (const Tensor& g : uses) total += g.numel();
  }
  return total;
}

// All gradients as one tensor, so that ranks meet once and not once per parameter. The gradients become its parts.
Tensor flatten(UseGradients& parameters) {
  const Tensor flat = Tensor::empty({numel_of(parameters)});
  int64_t at = 0;
  for (auto& uses : parameters) {
    for (Tensor& g : uses) {
      const Tensor dense = to_contiguous(g);
      if (dense.numel() > 0) std::memcpy(flat.data<float>() + at, dense.data<float>(), static_cast<size_t>(g.nbytes()));
      g = flat.view_as(g.extents(), contiguous_strides(g.extents()), at);
      at += g.numel();
    }
  }
  return flat;
}

// The parts of a flat tensor.
UseGradients parts_of(const Tensor& flat, const std::vector<std::vector<Extents>>& layout) {
  UseGradients parameters;
  int64_t at = 0;
  for (const auto& uses : layout) {
    parameters.emplace_back();
    for (const Extents& sizes : uses) {
      parameters.back().push_back(flat.view_as(sizes, contiguous_strides(sizes), at));
      at += tutti::numel_of(sizes);
    }
  }
  return parameters;
}

std::vector<std::vector<Extents>> layout_of(const UseGradients& parameters) {
  std::vector<std::vector<Extents>> layout;
  for (const auto& uses : parameters) {
    layout.emplace_back();
    for (const Tensor& g : uses) layout.back().push_back(g.extents());
  }
  return layout;
}

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

// Where ranks bring equal subtrees in their order, adding by halving over ranks is the rest of the tree.
bool is_tree_over_ranks(const NodePlan& plan) {
  const int64_t size = plan[0].empty() ? 0 : plan[0][0].end - plan[0][0].begin;
  for (size_t r = 0; r < plan.size(); ++r) {
    const auto begin = static_cast<int64_t>(r) * size;
    if (plan[r] != std::vector<ShardNode>{{begin, begin + size}}) return false;
  }
  return std::has_single_bit(plan.size());
}

// The sum over ranks; it takes the place of the first node, or of a tensor like it.
UseGradients reduce_over_ranks(std::vector<GradientNode> nodes, const NodePlan& plan, comm::ProcessGroup& group) {
  if (is_tree_over_ranks(plan)) {
    group.all_reduce(flatten(nodes[0].uses));
    return std::move(nodes[0].uses);
  }
  const auto layout = layout_of(nodes[0].uses);
  std::vector<Tensor> flat;
  for (GradientNode& node : nodes) {
    flat.push_back(flatten(node.uses));
    node.uses.clear();
  }
  const Tensor whole = Tensor::empty(flat[0].extents());
  comm::all_reduce_nodes(group, whole, flat, plan);
  return parts_of(whole, layout);
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
  TUTTI_CHECK(!mine.empty() && std::equal(nodes.begin(), nodes.end(), mine.begin(), mine.end(), same),
              "reduce_gradients: the gradients of this rank end with shard {} and make {} node{}; the plan expects shards {} to {} in {}",
              nodes.empty() ? -1 : nodes.back().shards.end - 1, nodes.size(), nodes.size() == 1 ? "" : "s", mine.empty() ? 0 : mine.front().begin,
              mine.empty() ? -1 : mine.back().end - 1, mine.size());
  const bool is_alone = group == nullptr || group->size() == 1;
  TUTTI_CHECK(!is_alone || nodes.size() == 1, "reduce_gradients: one rank brings {} nodes; expected a number of shards that is a power of two", nodes.size());
  return add_uses(is_alone ? std::move(nodes[0].uses) : reduce_over_ranks(std::move(nodes), plan, *group));
}

void RoundExchange::add(UseGradients* uses, int64_t shards) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  const int ranks = group_.size(), me = group_.rank();
  Tensor flat;
  if (uses != nullptr) {
    if (next_shard_ == 0) layout_ = layout_of(*uses);
    flat = flatten(*uses);
    uses->clear();
    numel_ = flat.numel();
  }
  const NodeSlice own = comm::slice_of(numel_, me, ranks);
  std::vector<Tensor> taken, given;
  for (int r = 0; r < ranks; ++r) {
    const NodeSlice theirs = uses == nullptr ? NodeSlice{} : comm::slice_of(numel_, r, ranks);
    given.push_back(uses == nullptr ? Tensor::empty({0}) : flat.view_as({theirs.end - theirs.begin}, {1}, theirs.begin));
    taken.push_back(Tensor::empty({next_shard_ + r < shards ? own.end - own.begin : 0}));
  }
  group_.all_to_all(taken, given);
  for (int r = 0; r < ranks; ++r, ++next_shard_) {
    if (next_shard_ < shards) sums_.push(next_shard_, std::move(taken[static_cast<size_t>(r)]), true);
  }
}

std::vector<Tensor> RoundExchange::finish() {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  next_shard_ = 0;
  const std::vector<NodeStack::Node> roots = sums_.take();
  TUTTI_ASSERT(roots.size() == 1, "the shards of a step make {} nodes", roots.size());
  const Tensor whole = Tensor::empty({numel_});
  std::vector<Tensor> slices;
  for (int r = 0; r < group_.size(); ++r) {
    const NodeSlice slice = comm::slice_of(numel_, r, group_.size());
    slices.push_back(whole.view_as({slice.end - slice.begin}, {1}, slice.begin));
  }
  group_.all_gather_v(slices, roots[0].values);
  return add_uses(parts_of(whole, layout_));
}

}  // namespace tutti::parallel
