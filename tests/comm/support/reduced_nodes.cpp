#include "tests/comm/support/reduced_nodes.h"

#include <bit>
#include <cmath>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// Values of very different size, so that every order of adding gives other bits.
float value_of(int64_t shard, int64_t i) {
  const uint32_t x = static_cast<uint32_t>(shard * 977 + i * 131 + 1) * 2654435761u;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(x)), static_cast<int>(x >> 27) - 50);
}

// The sum of the shards [begin, end) that are in [0, present), by the definition of the tree.
bool plain_tree(int64_t begin, int64_t end, int64_t present, int64_t i, float* sum) {
  if (begin >= present) return false;
  if (end - begin == 1) {
    *sum = value_of(begin, i);
    return true;
  }
  const int64_t middle = begin + (end - begin) / 2;
  float right = 0;
  plain_tree(begin, middle, present, i, sum);
  if (plain_tree(middle, end, present, i, &right)) *sum += right;
  return true;
}

}  // namespace

std::vector<float> plain_tree_sums(int64_t shards, int64_t numel) {
  std::vector<float> sums(static_cast<size_t>(numel));
  for (int64_t i = 0; i < numel; ++i)
    plain_tree(0, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(shards))), shards, i,
               &sums[static_cast<size_t>(i)]);
  return sums;
}

Tensor node_values(ShardNode node, int64_t numel) {
  Tensor t = Tensor::empty({numel});
  const auto sum = [&](auto&& self, int64_t begin, int64_t end, int64_t i) -> float {
    if (end - begin == 1) return value_of(begin, i);
    return self(self, begin, begin + (end - begin) / 2, i) + self(self, begin + (end - begin) / 2, end, i);
  };
  for (int64_t i = 0; i < numel; ++i) t.data<float>()[i] = sum(sum, node.begin, node.end, i);
  return t;
}

NodePlan consecutive_nodes(int64_t shards, int ranks) {
  NodePlan plan;
  for (int r = 0; r < ranks; ++r) plan.push_back(maximal_nodes(r * shards / ranks, (r + 1) * shards / ranks));
  return plan;
}

std::vector<float> reduced(ProcessGroup& group, const NodePlan& plan, int64_t numel) {
  std::vector<Tensor> nodes;
  for (const ShardNode& node : plan[static_cast<size_t>(group.rank())]) nodes.push_back(node_values(node, numel));
  const Tensor output = Tensor::empty({numel});
  all_reduce_nodes(group, output, nodes, plan);
  return {output.data<float>(), output.data<float>() + numel};
}

void check_reduced_nodes(ProcessGroup& group) {
  const int ranks = group.size();
  for (const int64_t numel : {0, 1, 4099, 60'000}) {
    TUTTI_CHECK(reduced(group, consecutive_nodes(8, ranks), numel) == plain_tree_sums(8, numel),
                "rank {}: other bits with {} elements", group.rank(), numel);
  }
  // Equal sizes, other shards: only the plans tell.
  NodePlan plan{{{0, 1}}, {{1, 2}}, {{2, 3}}};
  if (group.rank() == 1) std::swap(plan[0], plan[1]);
  std::vector<Tensor> nodes;
  for (const ShardNode& node : plan[static_cast<size_t>(group.rank())]) nodes.push_back(node_values(node, 99));
  const Tensor output = node_values({0, 1}, 99);
  std::string text;
  try {
    all_reduce_nodes(group, output, nodes, plan);
  } catch (const UsageError& error) {
    text = error.what();
  }
  TUTTI_CHECK(text.find("the plans (agreement keys) differ: rank 0 called all_to_all") != std::string::npos &&
                  text.find("rank 1 called") != std::string::npos,
              "rank {}: '{}'", group.rank(), text);
  for (int64_t i = 0; i < 99; ++i)
    TUTTI_CHECK(output.data<float>()[i] == node_values({0, 1}, 99).data<float>()[i], "element {} was written", i);
  // One rank's own mistake is told to all.
  text.clear();
  try {
    all_reduce_nodes(group, output, group.rank() == 2 ? std::vector<Tensor>() : std::vector{output},
                     {{{0, 1}}, {{1, 2}}, {{2, 3}}});
  } catch (const UsageError& error) {
    text = error.what();
  }
  TUTTI_CHECK(text.find("reduce_nodes: rank 2 gives 0 tensors; the plan expects 1 of it") != std::string::npos,
              "rank {}: '{}'", group.rank(), text);
  TUTTI_CHECK(reduced(group, consecutive_nodes(8, ranks), 7) == plain_tree_sums(8, 7), "rank {}: other bits afterwards",
              group.rank());
}

}  // namespace tutti::comm
