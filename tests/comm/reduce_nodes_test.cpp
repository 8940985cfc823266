// Sums over virtual shards: any division of the shards over ranks gives the bits of one plain tree.
#include "tutti/comm/reduce_nodes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/run_ranks.h"
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

std::vector<float> expected(int64_t shards, int64_t numel) {
  std::vector<float> sums(static_cast<size_t>(numel));
  for (int64_t i = 0; i < numel; ++i) plain_tree(0, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(shards))), shards, i, &sums[static_cast<size_t>(i)]);
  return sums;
}

// The values of a node, added as a rank that runs its shards one after another adds them: by the same tree.
Tensor node_values(ShardNode node, int64_t numel) {
  Tensor t = Tensor::empty({numel});
  const auto sum = [&](auto&& self, int64_t begin, int64_t end, int64_t i) -> float {
    if (end - begin == 1) return value_of(begin, i);
    return self(self, begin, begin + (end - begin) / 2, i) + self(self, begin + (end - begin) / 2, end, i);
  };
  for (int64_t i = 0; i < numel; ++i) t.data<float>()[i] = sum(sum, node.begin, node.end, i);
  return t;
}

NodePlan consecutive(int64_t shards, int ranks) {
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

TEST(MaximalNodes, AreThoseOfTheContract) {
  using Nodes = std::vector<ShardNode>;
  EXPECT_EQ(maximal_nodes(0, 8), (Nodes{{0, 8}}));
  EXPECT_EQ(maximal_nodes(0, 2), (Nodes{{0, 2}}));
  EXPECT_EQ(maximal_nodes(2, 5), (Nodes{{2, 4}, {4, 5}}));
  EXPECT_EQ(maximal_nodes(5, 8), (Nodes{{5, 6}, {6, 8}}));
  EXPECT_EQ(maximal_nodes(1, 7), (Nodes{{1, 2}, {2, 4}, {4, 6}, {6, 7}}));
  EXPECT_EQ(maximal_nodes(3, 3), Nodes{});
}

// 8 shards on 3 ranks are no tree over ranks: an adder that merges equal counts, or halves over ranks, gives other bits.
TEST(ReduceNodes, EveryNumberOfRanksGivesTheBitsOfOnePlainTree) {
  for (const int64_t shards : {1, 2, 8, 11, 16}) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) {
      if (ranks > shards) continue;
      for (const int64_t numel : {0, 1, 5, 20000}) {
        const std::vector<float> sums = expected(shards, numel);
        run_ranks(ranks, [&](ProcessGroup& group) {
          EXPECT_EQ(reduced(group, consecutive(shards, ranks), numel), sums) << shards << " shards, rank " << group.rank() << " of " << ranks << ", " << numel;
        });
      }
    }
  }
}

// Round by round: rank r brings shard jR + r in round j, and a rank has none in the last round.
TEST(ReduceNodes, ScatteredShardsGiveTheSameBits) {
  for (const int ranks : {2, 3, 5, 8}) {
    NodePlan plan(static_cast<size_t>(ranks));
    for (int64_t s = 0; s < 8; ++s) plan[static_cast<size_t>(s % ranks)].push_back({s, s + 1});
    run_ranks(ranks, [&](ProcessGroup& group) { EXPECT_EQ(reduced(group, plan, 1000), expected(8, 1000)) << ranks; });
  }
}

TEST(ReduceNodes, RanksWithoutShardsTakePart) {
  const NodePlan plan{{}, maximal_nodes(0, 3), {}, maximal_nodes(3, 4)};
  run_ranks(4, [&](ProcessGroup& group) { EXPECT_EQ(reduced(group, plan, 77), expected(4, 77)); });
}

TEST(ReduceNodes, OverEveryTransport) {
  for (const char* transport : {"shm", "gloo"}) {
    const auto sums_are_equal = [](ProcessGroup& group) {
      if (reduced(group, consecutive(8, 3), 4099) != expected(8, 4099)) throw InternalError("other bits");
    };
    for (const ForkedResult& rank : run_world(3, sums_are_equal, {.transport = transport})) EXPECT_TRUE(rank.succeeded()) << transport << ": " << rank.error;
  }
}

TEST(ReduceNodes, WhatDoesNotFitIsNamed) {
  const auto message = [](const std::function<void(ProcessGroup&)>& fn) {
    std::string text;
    run_ranks(1, [&](ProcessGroup& group) {
      try {
        fn(group);
      } catch (const UsageError& error) {
        text = error.what();
      }
    });
    return text;
  };
  const Tensor four = Tensor::empty({4}), five = Tensor::empty({5}), whole = Tensor::empty({4}, DType::i32);
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four}, {{{0, 1}}, {}}); }), "reduce_nodes: the plan is for 2 ranks and the group has 1");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four}, {{{0, 1}, {1, 2}}}); }),
            "reduce_nodes: rank 0 gives 1 tensors; the plan expects 2 of it");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{five}, {{{0, 1}}}); }), "reduce_nodes: the output has 4 elements and the nodes 5");
  EXPECT_NE(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{whole}, {{{0, 1}}}); }).find("expected contiguous f32"), std::string::npos);
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four}, {{{1, 3}}}); }),
            "reduce_nodes: [1, 3) is no node of a tree over shards; expected a power of two of shards that begins at a multiple of it");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four, four}, {{{0, 2}, {1, 2}}}); }),
            "reduce_nodes: [1, 2) follows [0, 2); expected disjoint nodes in ascending order");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, {}, {{}}); }), "reduce_nodes: no rank of the plan brings a node");
}

}  // namespace
}  // namespace tutti::comm
