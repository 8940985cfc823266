// How many sets of gradients a rank holds, counted by its allocator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/autograd/use_sink.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

// About 6 MiB in 40 parameters of uneven sizes, one of which fills several buckets, and an empty one.
std::vector<int64_t> sizes() {
  std::vector<int64_t> list{500'000, 0};
  for (int64_t i = 0; i < 38; ++i) list.push_back(1 + i * 1501);
  return list;
}

int64_t bytes_of_a_set() {
  int64_t bytes = 0;
  for (const int64_t n : sizes()) bytes += n * static_cast<int64_t>(sizeof(float));
  return bytes;
}

float value_of(int64_t shard, int64_t i) {
  return std::ldexp(static_cast<float>((shard * 31 + i * 7) % 101 - 50), static_cast<int>((shard + i) % 40) - 20);
}

float plain_tree(int64_t begin, int64_t end, int64_t i) {
  if (end - begin == 1) return value_of(begin, i);
  const int64_t middle = begin + (end - begin) / 2;
  return plain_tree(begin, middle, i) + plain_tree(middle, end, i);
}

// As backward does: one gradient after the other, whose memory nobody else holds.
void deliver(Shards& shards, int64_t shard) {
  const MemoryCategoryScope category(MemoryCategory::gradients);
  const std::vector<int64_t> list = sizes();
  for (size_t p = list.size(); p-- > 0;) {
    Tensor g = Tensor::empty({list[p]});
    for (int64_t i = 0; i < list[p]; ++i) g.data<float>()[i] = value_of(shard, i);
    shards.sink()->use(static_cast<int32_t>(p), 0, std::move(g));
    shards.sink()->finished(static_cast<int32_t>(p));
  }
}

// The largest number of maximal nodes of any prefix of the shards.
int64_t most_nodes(const std::vector<int64_t>& shards) {
  size_t most = 0;
  NodeSums stack;
  for (const int64_t s : shards) {
    stack.push(s, Tensor::of<float>({0}), true);
    most = std::max(most, stack.nodes().size());
  }
  return static_cast<int64_t>(most);
}

class GradientMemory : public testing::TestWithParam<std::tuple<int, Schedule>> {};
INSTANTIATE_TEST_SUITE_P(On, GradientMemory,
                         testing::Combine(testing::Range(1, 9),
                                          testing::Values(Schedule::once_a_step, Schedule::every_round)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Schedule::every_round ? "_every_round" : "_once_a_step");
                         });

TEST_P(GradientMemory, IsThatOfTheNodesAndOneSet) {
  const auto [ranks, schedule] = GetParam();
  comm::run_ranks(ranks, [&, schedule = schedule](comm::ProcessGroup& group) {
    std::vector<Tensor> leaves;
    for (const int64_t n : sizes()) leaves.push_back(Tensor::empty({n}));
    Shards shards(8, &group, leaves, schedule);
    Allocator& allocator = RankContext::current().allocator();
    const auto gradients = [](const auto& by_category) {
      return by_category[static_cast<size_t>(MemoryCategory::gradients)];
    };
    const int64_t before = gradients(allocator.statistics().current_by_category);
    allocator.reset_peak();
    for (const int64_t s : shards.local_shards()) {
      deliver(shards, s);
      shards.add(Tensor::of<float>({1.0f}));
    }
    const ShardSums sums = shards.finish();
    const double sets = static_cast<double>(gradients(allocator.statistics().at_peak_by_category) - before) /
                        static_cast<double>(bytes_of_a_set());
    EXPECT_LE(sets, static_cast<double>(most_nodes(shards.local_shards()) + 1)) << "rank " << group.rank();
    EXPECT_GE(sets, 1.0);
    for (const size_t p : {size_t{0}, size_t{7}, size_t{39}}) {
      for (int64_t i = 0; i < sums.gradients[p].numel(); i += 997)
        ASSERT_EQ(sums.gradients[p].data<float>()[i], plain_tree(0, 8, i)) << p << " " << i;
    }
  });
}

// A sum takes the memory of its left term, unless somebody else can read it.
TEST(NodeSums, AddsInPlaceWhereNobodyElseHoldsTheMemory) {
  const auto term = [] { return Tensor::of<float>({1.0f, 2.0f}); };
  const auto sum_with = [&](Tensor left) {
    NodeSums stack;
    const void* const memory = left.raw_data();
    stack.push(0, std::move(left));
    stack.push(1, term());
    const Tensor sum = stack.take()[0].values;
    EXPECT_EQ(sum.data<float>()[0], 2.0f);
    return std::pair{sum, sum.raw_data() == memory};
  };
  EXPECT_TRUE(sum_with(term()).second);
  const Tensor held = term();
  EXPECT_FALSE(sum_with(held).second) << "by the same handle";
  EXPECT_FALSE(sum_with(held.view_as({2}, {1}, 0)).second) << "by a view";
  EXPECT_EQ(held.data<float>()[1], 2.0f);
  EXPECT_FALSE(sum_with(Tensor::of<float>({1.0f}).view_as({2}, {0}, 0)).second) << "elements that share memory";
}

TEST(GradientBuckets, CoverEachElementOnce) {
  const std::vector<UseLayout> layouts = {
      {},
      {{}, {}},
      {{{0}}, {{3}}},
      {{{5'000'000}}, {{3}, {3}}, {{0}, {0}}, {}, {{4, 5}}, {{200'000}}, {{200'000}}},
      {{{40'000'000}, {40'000'000}}, {{1}}},
  };
  for (const UseLayout& layout : layouts) {
    std::vector<int64_t> next(layout.size(), 0);
    for (const GradientBucket& bucket : buckets_of(layout, GradientPlacements(layout.size(), 0, 1))) {
      int64_t numel = 0;
      for (const GradientBucket::Part& part : bucket.parts) {
        EXPECT_EQ(bucket.first, next[part.parameter]);
        EXPECT_EQ(layout[part.parameter].size(), bucket.uses);
        next[part.parameter] = bucket.first + part.numel;
        numel += part.numel;
      }
      EXPECT_EQ(bucket.numel, numel);
      EXPECT_LE(numel * 4, 32 << 20);
    }
    for (size_t p = 0; p < layout.size(); ++p) EXPECT_EQ(next[p], layout[p].empty() ? 0 : numel_of(layout[p][0]));
  }
}

TEST(GradientBuckets, LayoutsThatDifferHaveOtherHashes) {
  const std::vector<UseLayout> layouts = {{},         {{}},        {{{}}},      {{{2}}},   {{{2}, {2}}},
                                          {{{2, 1}}}, {{{2}}, {}}, {{}, {{2}}}, {{{1, 2}}}};
  for (size_t a = 0; a < layouts.size(); ++a) {
    for (size_t b = 0; b < layouts.size(); ++b)
      EXPECT_EQ(hash_of(layouts[a]) == hash_of(layouts[b]), a == b) << a << " " << b;
  }
}

}  // namespace
}  // namespace tutti::parallel
