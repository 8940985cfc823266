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

bool are_siblings(const comm::ShardNode& left, const comm::ShardNode& right) {
  const int64_t size = left.end - left.begin;
  return right.end - right.begin == size && left.end == right.begin && left.begin % (2 * size) == 0;
}

// Whether the elements may be overwritten because nobody else can read them.
bool is_unshared(const Tensor& t) {
  return t.impl()->references.load() == 1 && t.storage()->use_count() == 1 && !t.storage()->is_read_only() &&
         !overlaps_itself(t.extents(), t.strides());
}

}  // namespace

void NodeStack::push(int64_t shard, Tensor values, bool is_own) {
  const NoGradScope no_grad;
  const MemoryCategoryScope category(MemoryCategory::gradients);
  nodes_.push_back({{shard, shard + 1}, std::move(values), is_own});
  while (nodes_.size() >= 2 && are_siblings(nodes_[nodes_.size() - 2].shards, nodes_.back().shards)) {
    const Node right = std::move(nodes_.back());
    nodes_.pop_back();
    Node& left = nodes_.back();
    if (left.is_own || is_unshared(left.values)) add_(left.values, right.values);
    else left.values = tutti::add(left.values, right.values);
    left.is_own = true;
    left.shards.end = right.shards.end;
  }
}

GradientTree::GradientTree(const std::vector<Tensor>& leaves) : of_leaf_(leaves.size()), held_(leaves) {
  for (const Tensor& leaf : leaves) leaves_.push_back(leaf.impl());
}

int32_t GradientTree::index_of(const Tensor& leaf) const {
  const auto it = std::find(leaves_.begin(), leaves_.end(), leaf.impl());
  return it == leaves_.end() ? -1 : static_cast<int32_t>(it - leaves_.begin());
}

void GradientTree::begin(int64_t shard) {
  shard_ = shard;
  if (first_ < 0) first_ = shard;
  for (Leaf& leaf : of_leaf_) leaf.arrived = leaf.base = 0;
}

void GradientTree::use(int32_t index, int32_t position, Tensor grad) {
  TUTTI_CHECK(shard_ >= 0,
              "Shards: a gradient of parameter {} arrives, and all shards of the step were added; call finish()",
              index);
  TUTTI_CHECK(grad.dtype() == DType::f32, "Shards: a gradient of parameter {} in shard {} is {}; expected f32", index,
              shard_, describe(grad));
  Leaf& leaf = of_leaf_[static_cast<size_t>(index)];
  const size_t number = leaf.arrived++;
  position += static_cast<int32_t>(leaf.base);
  if (shard_ == first_) {
    leaf.uses.push_back({.sums = {}, .sizes = grad.extents(), .position = position});
    leaf.forward.insert(leaf.forward.begin() + position, number);
  }
  if (number >= leaf.uses.size()) return;  // end() tells their number
  Use& use = leaf.uses[number];
  TUTTI_CHECK(use.sizes == grad.extents(), "Shards: a gradient of parameter {} is {} in shard {} and {} in shard {}",
              index, grad.extents(), shard_, use.sizes, first_);
  TUTTI_CHECK(use.position == position,
              "Shards: the uses of parameter {} come in another order in shard {} than in shard {}; let every shard "
              "run the same program",
              index, shard_, first_);
  use.sums.push(shard_, std::move(grad));
}

void GradientTree::finished(int32_t index) {
  Leaf& leaf = of_leaf_[static_cast<size_t>(index)];
  leaf.base = leaf.arrived;
  const Tensor& parameter = held_[static_cast<size_t>(index)];
  if (const StoragePlacement* placement = storage_placement_of(parameter)) placement->finished(parameter);
  if (listener_) listener_();
}

void GradientTree::end() {
  const int64_t shard = std::exchange(shard_, -1);
  for (size_t p = 0; p < of_leaf_.size(); ++p) {
    const Leaf& leaf = of_leaf_[p];
    TUTTI_CHECK(leaf.arrived == leaf.uses.size(),
                "Shards: parameter {} has {} use{} in shard {} and {} in shard {}; let every shard use a parameter "
                "equally often, with zeros where it counts for nothing",
                p, leaf.arrived, leaf.arrived == 1 ? "" : "s", shard, leaf.uses.size(), first_);
  }
}

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
    std::vector<NodeStack::Node> sums = leaf.uses[number].sums.take();
    if (nodes.empty()) {
      for (const NodeStack::Node& sum : sums) nodes.push_back({sum.shards, UseGradients(of_leaf_.size())});
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

bool GradientTree::is_empty() const {
  return std::all_of(of_leaf_.begin(), of_leaf_.end(), [](const Leaf& leaf) { return leaf.uses.empty(); });
}

void GradientTree::clear() {
  for (Leaf& leaf : of_leaf_) leaf = {};
  first_ = shard_ = -1;
}

}  // namespace tutti::parallel
