#include "tutti/parallel/gradient_tree.h"

#include <algorithm>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/inplace.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/tensor/overlap.h"

namespace tutti::parallel {
namespace {

// Whether the elements may be overwritten because nobody else can read them.
bool is_unshared(const Tensor& t) {
  return t.impl()->references.load() == 1 && t.storage()->use_count() == 1 && !t.storage()->is_read_only() &&
         !overlaps_itself(t.extents(), t.strides());
}

// Half of the node of twice the size: the one before or after it.
comm::ShardNode sibling_of(const comm::ShardNode& node) {
  const int64_t size = node.end - node.begin;
  return node.begin % (2 * size) == 0 ? comm::ShardNode{node.end, node.end + size}
                                      : comm::ShardNode{node.begin - size, node.begin};
}

// The sum of two siblings, in the memory of the left one if it may be overwritten.
NodeSums::Node sum_of(NodeSums::Node left, const NodeSums::Node& right) {
  if (left.is_own || is_unshared(left.values)) add_(left.values, right.values);
  else left.values = tutti::add(left.values, right.values);
  left.is_own = true;
  left.shards.end = right.shards.end;
  return left;
}

auto place_of(std::vector<NodeSums::Node>& nodes, int64_t begin) {
  return std::ranges::lower_bound(nodes, begin, {}, [](const NodeSums::Node& node) { return node.shards.begin; });
}

}  // namespace

void NodeSums::push(int64_t shard, Tensor values, bool is_own) {
  const NoGradScope no_grad;
  const MemoryCategoryScope category(MemoryCategory::gradients);
  Node node{{shard, shard + 1}, std::move(values), is_own};
  while (true) {
    const comm::ShardNode wanted = sibling_of(node.shards);
    const auto place = place_of(nodes_, wanted.begin);
    if (place == nodes_.end() || place->shards != wanted) break;
    Node sibling = std::move(*place);
    nodes_.erase(place);
    node = sibling.shards < node.shards ? sum_of(std::move(sibling), node) : sum_of(std::move(node), sibling);
  }
  nodes_.insert(place_of(nodes_, node.shards.begin), std::move(node));
}

Tensor NodeSums::take(int64_t shard) {
  const auto place = place_of(nodes_, shard);
  TUTTI_ASSERT(place != nodes_.end() && place->shards == (comm::ShardNode{shard, shard + 1}),
               "the gradient of shard {} was added to another", shard);
  Tensor values = std::move(place->values);
  nodes_.erase(place);
  return values;
}

GradientTree::GradientTree(const std::vector<Tensor>& leaves, std::vector<size_t> numbers)
    : of_leaf_(leaves.size()), held_(leaves), numbers_(std::move(numbers)) {
  for (size_t i = 0; i < leaves.size(); ++i) index_.emplace(leaves[i].impl(), static_cast<int32_t>(i));
}

int32_t GradientTree::index_of(const Tensor& leaf) const {
  const auto it = index_.find(leaf.impl());
  return it == index_.end() ? -1 : it->second;
}

ShardArrivals GradientTree::begin_shard(int64_t shard) const {
  return {shard, std::vector<ShardArrivals::Count>(of_leaf_.size())};
}

void GradientTree::use(ShardArrivals& from, int32_t index, int32_t position, Tensor grad) {
  const auto i = static_cast<size_t>(index);
  TUTTI_CHECK(grad.dtype() == DType::f32, "Shards: a gradient of parameter {} in shard {} is {}; expected f32",
              number(i), from.shard, describe(grad));
  Leaf& leaf = of_leaf_[i];
  const size_t arrival = from.counts[i].arrived++;
  position += static_cast<int32_t>(from.counts[i].base);
  if (arrival == leaf.uses.size() && !ended_) {
    leaf.uses.push_back({.sums = {}, .sizes = grad.extents(), .position = position, .shard = from.shard});
    leaf.forward.insert(leaf.forward.begin() + position, arrival);
  }
  if (arrival >= leaf.uses.size()) return;  // end() tells their number
  Use& use = leaf.uses[arrival];
  TUTTI_CHECK(use.sizes == grad.extents(), "Shards: a gradient of parameter {} is {} in shard {} and {} in shard {}",
              number(i), grad.extents(), from.shard, use.sizes, use.shard);
  TUTTI_CHECK(use.position == position,
              "Shards: the uses of parameter {} come in another order in shard {} than in shard {}; let every shard "
              "run the same program",
              number(i), from.shard, use.shard);
  ++leaf.delivered;
  use.sums.push(from.shard, std::move(grad));
}

void GradientTree::finished(ShardArrivals& from, int32_t index) {
  ShardArrivals::Count& count = from.counts[static_cast<size_t>(index)];
  count.base = count.arrived;
  const Tensor& parameter = held_[static_cast<size_t>(index)];
  if (const StoragePlacement* placement = storage_placement_of(parameter)) placement->finished(parameter);
}

void GradientTree::end(const ShardArrivals& from) {
  if (!ended_) {
    ended_ = from.shard;
    for (size_t p = 0; p < of_leaf_.size(); ++p) of_leaf_[p].expected = from.counts[p].arrived;
  }
  for (size_t p = 0; p < of_leaf_.size(); ++p) {
    const size_t arrived = from.counts[p].arrived, expected = of_leaf_[p].expected;
    TUTTI_CHECK(arrived == expected,
                "Shards: parameter {} has {} use{} in shard {} and {} in shard {}; let every shard use a parameter "
                "equally often, with zeros where it counts for nothing",
                number(p), arrived, arrived == 1 ? "" : "s", from.shard, expected, *ended_);
  }
}

void GradientTree::use(int32_t index, int32_t position, Tensor grad) {
  TUTTI_CHECK(current_.shard >= 0,
              "Shards: a gradient of parameter {} arrives, and all shards of the step were added; call finish()",
              number(static_cast<size_t>(index)));
  use(current_, index, position, std::move(grad));
}

void GradientTree::finished(int32_t index) { finished(current_, index); }

void GradientTree::end() { end(std::exchange(current_, {})); }

UseLayout GradientTree::layout() const {
  UseLayout sizes;
  for (const Leaf& leaf : of_leaf_) {
    sizes.emplace_back();
    for (const size_t number : leaf.forward) sizes.back().push_back(leaf.uses[number].sizes);
  }
  return sizes;
}

void GradientTree::take(size_t p, std::vector<GradientNode>& nodes) {
  Leaf& leaf = of_leaf_[p];
  for (const size_t number : leaf.forward) {
    std::vector<NodeSums::Node> sums = leaf.uses[number].sums.take();
    if (nodes.empty()) {
      for (const NodeSums::Node& sum : sums) nodes.push_back({sum.shards, UseGradients(of_leaf_.size())});
    }
    TUTTI_ASSERT(sums.size() == nodes.size(), "the uses of parameter {} make {} nodes, and {} were expected", p,
                 sums.size(), nodes.size());
    for (size_t n = 0; n < sums.size(); ++n) nodes[n].uses[p].push_back(std::move(sums[n].values));
  }
}

std::vector<GradientNode> GradientTree::take() {
  std::vector<GradientNode> nodes;
  for (size_t p = 0; p < of_leaf_.size(); ++p) take(p, nodes);
  return nodes;
}

UseGradients GradientTree::take_shard(int64_t shard) {
  UseGradients gradients(of_leaf_.size());
  for (size_t p = 0; p < of_leaf_.size(); ++p) {
    // A shard that has not ended may have brought more, which its end will refuse.
    for (const size_t use : of_leaf_[p].forward) {
      if (use < of_leaf_[p].expected) gradients[p].push_back(of_leaf_[p].uses[use].sums.take(shard));
    }
  }
  return gradients;
}

bool GradientTree::is_complete(size_t parameter, size_t shards) const {
  const Leaf& leaf = of_leaf_[parameter];
  return ended_ && leaf.delivered == leaf.expected * shards;
}

bool GradientTree::is_empty() const {
  return std::all_of(of_leaf_.begin(), of_leaf_.end(), [](const Leaf& leaf) { return leaf.uses.empty(); });
}

void GradientTree::clear() {
  for (Leaf& leaf : of_leaf_) leaf = {};
  ended_.reset();
  current_ = {};
}

}  // namespace tutti::parallel
