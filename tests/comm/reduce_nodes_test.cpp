// Sums over virtual shards: any division of the shards over ranks gives the bits of one plain tree.
#include "tutti/comm/reduce_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/comm/support/reduced_nodes.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"

namespace tutti::comm {
namespace {

TEST(MaximalNodes, AreThoseOfTheContract) {
  using Nodes = std::vector<ShardNode>;
  EXPECT_EQ(maximal_nodes(0, 8), (Nodes{{0, 8}}));
  EXPECT_EQ(maximal_nodes(0, 2), (Nodes{{0, 2}}));
  EXPECT_EQ(maximal_nodes(2, 5), (Nodes{{2, 4}, {4, 5}}));
  EXPECT_EQ(maximal_nodes(5, 8), (Nodes{{5, 6}, {6, 8}}));
  EXPECT_EQ(maximal_nodes(1, 7), (Nodes{{1, 2}, {2, 4}, {4, 6}, {6, 7}}));
  EXPECT_EQ(maximal_nodes(3, 3), Nodes{});
}

// 8 shards on 3 ranks are no tree over ranks: an adder that merges equal counts, or halves over ranks, gives other
// bits.
TEST(ReduceNodes, EveryNumberOfRanksGivesTheBitsOfOnePlainTree) {
  for (const int64_t shards : {1, 2, 8, 11, 16}) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) {
      if (ranks > shards) continue;
      for (const int64_t numel : {0, 1, 5, 20000}) {
        const std::vector<float> sums = plain_tree_sums(shards, numel);
        run_ranks(ranks, [&](ProcessGroup& group) {
          EXPECT_EQ(reduced(group, consecutive_nodes(shards, ranks), numel), sums)
              << shards << " shards, rank " << group.rank() << " of " << ranks << ", " << numel;
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
    run_ranks(ranks,
              [&](ProcessGroup& group) { EXPECT_EQ(reduced(group, plan, 1000), plain_tree_sums(8, 1000)) << ranks; });
  }
}

TEST(ReduceNodes, RanksWithoutShardsTakePart) {
  const NodePlan plan{{}, maximal_nodes(0, 3), {}, maximal_nodes(3, 4)};
  run_ranks(4, [&](ProcessGroup& group) { EXPECT_EQ(reduced(group, plan, 77), plain_tree_sums(4, 77)); });
}

TEST(ReduceNodes, OverEveryTransport) {
  for (const std::string& transport : world_transports()) run_over(transport, 3, check_reduced_nodes);
}

// Nodes and outputs that are parts of larger tensors.
TEST(ReduceNodes, ViewsAreReadAndWrittenWhereTheyLie) {
  run_ranks(2, [](ProcessGroup& group) {
    const NodePlan plan = consecutive_nodes(2, 2);
    const Tensor around = Tensor::empty({30}), values = node_values(plan[static_cast<size_t>(group.rank())][0], 10);
    std::fill_n(around.data<float>(), 30, -1.0f);
    std::copy_n(values.data<float>(), 10, around.data<float>() + 7);
    const Tensor node = around.view_as({10}, {1}, 7), output = around.view_as({10}, {1}, 19);
    all_reduce_nodes(group, output, std::vector{node}, plan);
    const std::vector<float> sums = plain_tree_sums(2, 10);
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(around.data<float>()[19 + i], sums[static_cast<size_t>(i)]);
      EXPECT_EQ(around.data<float>()[7 + i], values.data<float>()[i]);
    }
    EXPECT_EQ(around.data<float>()[18], -1.0f);
    EXPECT_EQ(around.data<float>()[29], -1.0f);
  });
}

// In symmetric memory peers read each other's nodes, and gloo, which cannot, exchanges them.
TEST(ReduceNodes, InSymmetricMemoryTheyHaveTheSameBits) {
  for (const std::string& transport : world_transports()) {
    for (const int ranks : {2, 3, 5}) {
      run_over(transport, ranks, [&](ProcessGroup& group) {
        const NodePlan plan = consecutive_nodes(8, ranks);
        const int me = group.rank();
        const Tensor memory = symm::empty_strided_p2p({2 * 5000}, {1}, DType::f32, kCpu, {.group = symm_group(group)});
        const SymmetricBuffer buffer(group, memory);
        const bool shares = transport == "threads" || transport == "shm";
        TUTTI_CHECK(buffer.is_direct() == shares, "{}: is_direct() is {}", transport, buffer.is_direct());
        for (const int64_t numel : {5000, 3, 0}) {
          for (size_t i = 0; i < plan[static_cast<size_t>(me)].size(); ++i) {
            const Tensor values = node_values(plan[static_cast<size_t>(me)][i], numel);
            std::copy_n(values.data<float>(), numel, memory.data<float>() + static_cast<int64_t>(i) * numel);
          }
          const NodeSlice own = slice_of(numel, me, ranks);
          const Tensor output = Tensor::empty({own.end - own.begin});
          reduce_nodes(group, output, buffer, numel, plan);
          const std::vector<float> sums = plain_tree_sums(8, numel);
          for (int64_t i = own.begin; i < own.end; ++i)
            TUTTI_CHECK(output.data<float>()[i - own.begin] == sums[static_cast<size_t>(i)],
                        "{}: element {} of rank {}", transport, i, me);
        }
        std::string text;
        try {
          reduce_nodes(group, Tensor::empty({0}), buffer, 6000, plan);
        } catch (const UsageError& error) {
          text = error.what();
        }
        TUTTI_CHECK(ranks == 2 || text ==
                                      "reduce_nodes: the buffer is [10000] f32 cpu; expected contiguous f32 with 2 "
                                      "nodes of 6000 elements",
                    "{}", text);
      });
    }
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
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four}, {{{0, 1}}, {}}); }),
            "reduce_nodes: the plan is for 2 ranks and the group has 1");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four}, {{{0, 1}, {1, 2}}}); }),
            "reduce_nodes: rank 0 gives 1 tensors; the plan expects 2 of it");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{five}, {{{0, 1}}}); }),
            "reduce_nodes: the output has 4 elements and the nodes 5");
  EXPECT_NE(message([&](ProcessGroup& g) {
              all_reduce_nodes(g, four, std::vector{whole}, {{{0, 1}}});
            }).find("expected contiguous f32"),
            std::string::npos);
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four}, {{{1, 3}}}); }),
            "reduce_nodes: [1, 3) is no node of a tree over shards; expected a power of two of shards that begins at a "
            "multiple of it");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, std::vector{four, four}, {{{0, 2}, {1, 2}}}); }),
            "reduce_nodes: [1, 2) follows [0, 2); expected disjoint nodes in ascending order");
  EXPECT_EQ(message([&](ProcessGroup& g) { all_reduce_nodes(g, four, {}, {{}}); }),
            "reduce_nodes: no rank of the plan brings a node");
}

}  // namespace
}  // namespace tutti::comm
