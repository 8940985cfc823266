#include "tutti/parallel/shards.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"

namespace tutti::parallel {
namespace {

using comm::NodePlan;
using comm::ShardNode;
using Node = GradientTree::Node;

bool are_siblings(const ShardNode& left, const ShardNode& right) {
  const int64_t size = left.end - left.begin;
  return right.end - right.begin == size && left.end == right.begin && left.begin % (2 * size) == 0;
}

int64_t numel_of(const UseGradients& parameters) {
  int64_t total = 0;
  for (const auto& uses : parameters) {
    for (const Tensor& g : uses) total += g.numel();
  }
  return total;
}

// All gradients of a node as one tensor, so that ranks meet once and not once per parameter. The gradients become its parts.
Tensor flatten(UseGradients& parameters) {
  const Tensor flat = Tensor::empty({numel_of(parameters)});
  int64_t at = 0;
  for (auto& uses : parameters) {
    for (Tensor& g : uses) {
      const Tensor dense = to_contiguous(g);
      std::memcpy(flat.data<float>() + at, dense.data<float>(), static_cast<size_t>(g.nbytes()));
      g = flat.view_as(g.extents(), contiguous_strides(g.extents()), at);
      at += g.numel();
    }
  }
  return flat;
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
UseGradients reduce_over_ranks(std::vector<Node> nodes, const NodePlan& plan, comm::ProcessGroup& group) {
  if (is_tree_over_ranks(plan)) {
    group.all_reduce(flatten(nodes[0].uses));
    return std::move(nodes[0].uses);
  }
  std::vector<Tensor> flat;
  for (Node& node : nodes) flat.push_back(flatten(node.uses));
  const Tensor whole = Tensor::empty(flat[0].extents());
  comm::all_reduce_nodes(group, whole, flat, plan);
  UseGradients sums = std::move(nodes[0].uses);
  for (auto& uses : sums) {
    for (Tensor& g : uses) g = whole.view_as(g.extents(), contiguous_strides(g.extents()), g.data<float>() - flat[0].data<float>());
  }
  return sums;
}

}  // namespace

ShardRange shards_of_rank(int64_t shards, int rank, int ranks) {
  TUTTI_CHECK(ranks >= 1 && ranks <= shards,
              "{} data-parallel ranks cannot share {} virtual shard{}: each needs at least one; start at most {} ranks or raise numerics.virtual_shards", ranks,
              shards, shards == 1 ? "" : "s", shards);
  TUTTI_CHECK(rank >= 0 && rank < ranks, "shards_of_rank: rank {} of {} ranks; expected 0 to {}", rank, ranks, ranks - 1);
  return {rank * shards / ranks, (rank + 1) * shards / ranks};
}

UseGradients take_gradients(const std::vector<Tensor>& parameters) {
  UseGradients uses;
  for (const Tensor& p : parameters) uses.push_back(take_uses(p));
  return uses;
}

void GradientTree::push(UseGradients uses) {
  MemoryCategoryScope category(MemoryCategory::gradients);
  stack_.push_back({{next_, next_ + 1}, std::move(uses)});
  ++next_;
  while (stack_.size() >= 2 && are_siblings(stack_[stack_.size() - 2].shards, stack_.back().shards)) {
    const Node right = std::move(stack_.back());
    stack_.pop_back();
    Node& left = stack_.back();
    // Not in place: one cotangent may serve two parameters.
    for (size_t p = 0; p < left.uses.size(); ++p) {
      for (size_t u = 0; u < left.uses[p].size(); ++u) left.uses[p][u] = tutti::add(left.uses[p][u], right.uses[p][u]);
    }
    left.shards.end = right.shards.end;
  }
}

std::vector<Node> GradientTree::take() {
  next_ = first_;
  return std::exchange(stack_, {});
}

NodePlan consecutive_shards(int64_t shards, int ranks) {
  NodePlan plan;
  for (int r = 0; r < ranks; ++r) {
    const ShardRange range = shards_of_rank(shards, r, ranks);
    plan.push_back(comm::maximal_nodes(range.begin, range.end));
  }
  return plan;
}

std::vector<Tensor> reduce_gradients(std::vector<Node> nodes, const NodePlan& plan, comm::ProcessGroup* group) {
  MemoryCategoryScope category(MemoryCategory::gradients);
  const std::vector<ShardNode>& mine = plan[group == nullptr ? 0 : static_cast<size_t>(group->rank())];
  const auto same = [](const Node& node, const ShardNode& planned) { return node.shards == planned; };
  TUTTI_CHECK(!mine.empty() && std::equal(nodes.begin(), nodes.end(), mine.begin(), mine.end(), same),
              "reduce_gradients: the gradients of this rank end with shard {} and make {} node{}; the plan expects shards {} to {} in {}",
              nodes.empty() ? -1 : nodes.back().shards.end - 1, nodes.size(), nodes.size() == 1 ? "" : "s", mine.empty() ? 0 : mine.front().begin,
              mine.empty() ? -1 : mine.back().end - 1, mine.size());
  const bool is_alone = group == nullptr || group->size() == 1;
  TUTTI_CHECK(!is_alone || nodes.size() == 1, "reduce_gradients: one rank brings {} nodes; expected a number of shards that is a power of two", nodes.size());
  const UseGradients sums = is_alone ? std::move(nodes[0].uses) : reduce_over_ranks(std::move(nodes), plan, *group);
  std::vector<Tensor> grads;
  for (const auto& uses : sums) {
    Tensor sum = uses.empty() ? Tensor{} : uses[0];
    for (size_t u = 1; u < uses.size(); ++u) sum = tutti::add(sum, uses[u]);
    grads.push_back(sum);
  }
  return grads;
}

Shards::Shards(int64_t count, comm::ProcessGroup* group)
    : count_(count), group_(group), ranks_(group == nullptr ? 1 : group->size()), mine_(shards_of_rank(count, group == nullptr ? 0 : group->rank(), ranks_)),
      plan_(consecutive_shards(count, ranks_)), tree_(mine_.begin) {
  TUTTI_CHECK(count >= 1 && std::has_single_bit(static_cast<uint64_t>(count)), "{} virtual shards; expected a power of two", count);
}

double Shards::efficiency() const {
  const int64_t most = (count_ + ranks_ - 1) / ranks_;
  return static_cast<double>(count_) / static_cast<double>(ranks_ * most);
}

std::string Shards::advice() const {
  if (count_ % ranks_ == 0) return "";
  std::string text = fmt::format("{} virtual shards on {} ranks: some ranks run {} of them and others {}, so that {:.0f} % of the ranks' time passes in waiting", count_,
                                 ranks_, count_ / ranks_ + 1, count_ / ranks_, 100 * (1 - efficiency()));
  if (efficiency() < 0.8) text += fmt::format("; numerics.virtual_shards of {} or more keeps it below a fifth, and is another run with other bits",
                                               std::bit_ceil(static_cast<uint64_t>(4 * ranks_)));
  return text;
}

int64_t Shards::sum(int64_t mine) const {
  if (ranks_ > 1) group_->all_reduce_values<int64_t>({&mine, 1});
  return mine;
}

void Shards::add(const Tensor& losses, UseGradients uses) {
  TUTTI_CHECK(losses.dtype() == DType::f32, "Shards::add: the losses are {}; expected f32", describe(losses));
  TUTTI_CHECK(added_ < mine_.count(), "Shards::add: this rank has {} shards, {} to {}, and all were added; call finish()", mine_.count(), mine_.begin, mine_.end - 1);
  check_uses(uses);
  const Tensor dense = to_contiguous(losses);
  loss_.add({dense.data<float>(), static_cast<size_t>(dense.numel())});
  tree_.push(std::move(uses));
  ++added_;
}

void Shards::check_uses(const UseGradients& uses) {
  const int64_t shard = mine_.begin + added_;
  std::vector<std::vector<Extents>> layout;
  for (size_t p = 0; p < uses.size(); ++p) {
    layout.emplace_back();
    for (const Tensor& g : uses[p]) {
      TUTTI_CHECK(g.dtype() == DType::f32, "Shards::add: a gradient of parameter {} in shard {} is {}; expected f32", p, shard, describe(g));
      layout.back().push_back(g.extents());
    }
  }
  if (added_ == 0) layout_ = layout;
  TUTTI_CHECK(layout.size() == layout_.size(), "Shards::add: shard {} brings gradients of {} parameters and shard {} of {}", shard, layout.size(), mine_.begin,
              layout_.size());
  for (size_t p = 0; p < layout.size(); ++p) {
    TUTTI_CHECK(layout[p].size() == layout_[p].size(),
                "Shards::add: parameter {} has {} use{} in shard {} and {} in shard {}; let every shard use a parameter equally often, with zeros where it counts for nothing", p,
                layout[p].size(), layout[p].size() == 1 ? "" : "s", shard, layout_[p].size(), mine_.begin);
    for (size_t u = 0; u < layout[p].size(); ++u)
      TUTTI_CHECK(layout[p][u] == layout_[p][u], "Shards::add: a gradient of parameter {} is {} in shard {} and {} in shard {}", p, layout[p][u], shard, layout_[p][u],
                  mine_.begin);
  }
}

// Every rank says what it brings before anything is added: a buffer of the same size may hold other parameters.
void Shards::check_ranks() {
  std::string text;
  for (const auto& uses : layout_) {
    for (const Extents& sizes : uses) text += to_string(sizes);
    text += ';';
  }
  std::vector<int64_t> layouts(static_cast<size_t>(ranks_), 0);
  layouts[static_cast<size_t>(group_->rank())] = std::bit_cast<int64_t>(hash64(text));
  group_->all_reduce_values<int64_t>(layouts);
  for (size_t r = 1; r < layouts.size(); ++r)
    TUTTI_CHECK(layouts[r] == layouts[0], "Shards::finish: the uses of parameters on rank {} are not those on rank 0, in number or size; let every shard use each parameter "
                "equally often, with zeros where it counts for nothing", r);
}

ShardSums Shards::finish() {
  TUTTI_CHECK(added_ == mine_.count(), "Shards::finish: {} of this rank's {} shards were added", added_, mine_.count());
  added_ = 0;
  ExactSum loss = std::exchange(loss_, ExactSum(ExactTerm::value));
  if (ranks_ > 1) {
    check_ranks();
    auto words = loss.words();
    group_->all_reduce_values<int64_t>(words);
    loss.set_words(words);
  }
  return {loss.value(), reduce_gradients(tree_.take(), plan_, group_)};
}

}  // namespace tutti::parallel
