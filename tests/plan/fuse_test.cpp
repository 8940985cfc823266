// Which nodes the fuser puts together at its limits, and where memory is planned for many values at once.
#include "tutti/plan/passes/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/plan/support/graph_builder.h"
#include "tutti/plan/passes/pass_state.h"
#include "tutti/plan/passes/plan_memory.h"

namespace tutti {
namespace {

using graph::Graph;
using graph::Lifetime;
using graph::Value;
using plan_test::GraphBuilder;

std::vector<size_t> sizes_of_groups(Graph g, const graph::FuseOptions& limits) {
  graph::BuildOptions options{.name = "f"};
  options.fuse = limits;
  graph::PassState state{.graph = std::move(g), .options = options};
  graph::fuse(state);
  std::vector<size_t> sizes;
  for (const graph::Group& group : state.groups) sizes.push_back(group.nodes.size());
  return sizes;
}

Graph chain(int nodes) {
  GraphBuilder g;
  Value x = g.given({8});
  for (int i = 0; i < nodes; ++i) x = g.call("exp", {x}, {8});
  return g.with_results({x});
}
// Nodes that read one value and nothing of each other.
Graph fan(int nodes) {
  GraphBuilder g;
  const Value x = g.given({8});
  std::vector<Value> results;
  for (int i = 0; i < nodes; ++i) results.push_back(g.call("exp", {x}, {8}));
  return g.with_results(std::move(results));
}

using Sizes = std::vector<size_t>;

TEST(Fuse, GroupsHaveAtMostSoManyNodes) {
  EXPECT_EQ(sizes_of_groups(chain(10), {.max_nodes = 4}), (Sizes{4, 4, 2}));
  EXPECT_EQ(sizes_of_groups(chain(4), {.max_nodes = 4}), (Sizes{4}));
  EXPECT_EQ(sizes_of_groups(chain(1), {.max_nodes = 1}), (Sizes{1}));
  EXPECT_EQ(sizes_of_groups(chain(3), {.max_nodes = 1}), (Sizes{1, 1, 1}));
}

// A group reads one value and writes one for each node.
TEST(Fuse, GroupsHaveAtMostSoManyOperands) {
  EXPECT_EQ(sizes_of_groups(fan(13), {.max_operands = 6}), (Sizes{5, 5, 3}));
  EXPECT_EQ(sizes_of_groups(fan(10), {.max_operands = 6}), (Sizes{5, 5}));
  EXPECT_EQ(sizes_of_groups(fan(2), {.max_operands = 2}), (Sizes{1, 1}));
  // In a chain what one node writes and the next one reads counts twice.
  EXPECT_EQ(sizes_of_groups(chain(7), {.max_operands = 4}), (Sizes{2, 2, 2, 1}));
}

// The largest first, each at the smallest gap that holds it, of those that live meanwhile: the definition, in plain
// loops over sorted intervals.
std::vector<int64_t> offsets_by_definition(const std::vector<Lifetime>& all) {
  const auto rounded = [](int64_t n) { return (n + 63) / 64 * 64; };
  std::vector<size_t> order(all.size()), placed;
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a].nbytes > all[b].nbytes; });
  std::vector<int64_t> offsets(all.size(), 0);
  for (const size_t i : order) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const size_t j : placed)
      if (all[j].first <= all[i].last && all[i].first <= all[j].last)
        taken.push_back({offsets[j], offsets[j] + rounded(all[j].nbytes)});
    std::sort(taken.begin(), taken.end());
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= rounded(all[i].nbytes) && begin - at < best_gap) best = at, best_gap = begin - at;
      at = std::max(at, end);
    }
    offsets[i] = best >= 0 ? best : at;
    placed.push_back(i);
  }
  return offsets;
}

TEST(PlanMemory, TakesTheSmallestGapThatHoldsAValue) {
  uint64_t state = 1;
  const auto random = [&](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> all(static_cast<size_t>(random(60)));
    for (Lifetime& l : all) {
      l.nbytes = 1 + random(round % 2 == 0 ? 5000 : 200);
      const int32_t first = static_cast<int32_t>(random(40));
      l.first = first, l.last = first + static_cast<int32_t>(random(round % 3 == 0 ? 40 : 4));
    }
    const graph::MemoryPlan plan = graph::plan_memory(all);
    EXPECT_EQ(plan.offsets, offsets_by_definition(all)) << round;
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const bool meet = all[j].first <= all[i].last && all[i].first <= all[j].last;
        const bool overlap =
            plan.offsets[i] < plan.offsets[j] + all[j].nbytes && plan.offsets[j] < plan.offsets[i] + all[i].nbytes;
        EXPECT_FALSE(meet && overlap) << i << " " << j;
      }
  }
}

}  // namespace
}  // namespace tutti
