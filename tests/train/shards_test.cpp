#include "tutti/train/shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/ops/cross_entropy.h"

namespace tutti::train {
namespace {

constexpr int64_t kElements = 40;

// Values of very different size, so that every order of adding gives other bits.
float value_of(int64_t shard, int64_t parameter, int64_t use, int64_t i) {
  const uint32_t x = static_cast<uint32_t>(((shard * 7 + parameter) * 5 + use) * 977 + i * 131 + 1) * 2654435761u;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(x)), static_cast<int>(x >> 27) - 50);
}

// Parameter 0 is used once, parameter 1 twice (a tied weight).
std::vector<std::vector<Tensor>> gradients_of(int64_t shard) {
  std::vector<std::vector<Tensor>> uses(2);
  for (int64_t p = 0; p < 2; ++p) {
    for (int64_t u = 0; u <= p; ++u) {
      std::vector<float> values;
      for (int64_t i = 0; i < kElements; ++i) values.push_back(value_of(shard, p, u, i));
      uses[static_cast<size_t>(p)].push_back(Tensor::of(values));
    }
  }
  return uses;
}

float plain_tree(int64_t begin, int64_t end, int64_t p, int64_t u, int64_t i) {
  if (end - begin == 1) return value_of(begin, p, u, i);
  const int64_t middle = begin + (end - begin) / 2;
  return plain_tree(begin, middle, p, u, i) + plain_tree(middle, end, p, u, i);
}

std::vector<std::vector<float>> expected(int64_t shards) {
  std::vector<std::vector<float>> grads(2);
  for (int64_t i = 0; i < kElements; ++i) {
    grads[0].push_back(plain_tree(0, shards, 0, 0, i));
    grads[1].push_back(plain_tree(0, shards, 1, 0, i) + plain_tree(0, shards, 1, 1, i));
  }
  return grads;
}

std::vector<std::vector<float>> reduced(int64_t shards, int rank, int ranks, comm::ProcessGroup* group) {
  GradientTree tree;
  const ShardRange mine = shards_of_rank(shards, rank, ranks);
  for (int64_t s = mine.begin; s < mine.end; ++s) tree.push(gradients_of(s));
  std::vector<std::vector<float>> grads;
  for (const Tensor& g : tree.finish(group)) grads.emplace_back(g.data<float>(), g.data<float>() + g.numel());
  return grads;
}

TEST(GradientTree, EqualsThePlainTreeAndAddsUsesLast) {
  for (const int64_t shards : {1, 2, 4, 8, 32}) EXPECT_EQ(reduced(shards, 0, 1, nullptr), expected(shards)) << shards << " shards";
}

TEST(GradientTree, HasTheSameBitsOnEveryNumberOfRanks) {
  for (const int ranks : {2, 4, 8}) {
    std::mutex mutex;
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const auto grads = reduced(8, group.rank(), ranks, &group);
      std::lock_guard lock(mutex);
      EXPECT_EQ(grads, expected(8)) << "rank " << group.rank() << " of " << ranks;
    });
  }
}

TEST(GradientTree, IsEmptyAfterFinish) {
  GradientTree tree;
  for (int step = 0; step < 2; ++step) {
    tree.push(gradients_of(0));
    tree.push(gradients_of(1));
    EXPECT_EQ(tree.finish(nullptr)[0].data<float>()[3], expected(2)[0][3]) << "step " << step;
  }
}

TEST(GradientTree, AnUnfinishedTreeIsAnError) {
  GradientTree tree;
  for (int64_t s = 0; s < 3; ++s) tree.push(gradients_of(s));
  EXPECT_THROW(tree.finish(nullptr), InternalError);
}

TEST(ShardsOfRank, AreConsecutiveAndCoverAll) {
  int64_t next = 0;
  for (int r = 0; r < 4; ++r) {
    const ShardRange range = shards_of_rank(8, r, 4);
    EXPECT_EQ(range.begin, next);
    EXPECT_EQ(range.end, next + 2);
    next = range.end;
  }
  EXPECT_EQ(next, 8);
}

TEST(ShardsOfRank, OtherThanPowersOfTwoUpToTheShardsAreRefusedWithTheLegalCounts) {
  for (const int ranks : {0, 3, 6, 16}) {
    try {
      shards_of_rank(8, 0, ranks);
      FAIL() << ranks << " ranks were accepted";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("1, 2, 4, ... up to 8 ranks"), std::string::npos) << e.what();
    }
  }
}

TEST(ToBatch, FindsTheFirstTokenOfEachDocument) {
  // Row 0 holds the end of one document and the start of another; row 1 is inside one.
  const TokenRows rows{2, 4, {5, 6, 7, 8, 9, 10, 11, 12}, {6, kIgnoreLabel, 8, 9, 10, 11, 12, kIgnoreLabel}, {0, 1, 0, 1, 0, 1, 2, 3}};
  const models::TokenBatch batch = to_batch(rows);
  EXPECT_EQ(batch.rows, 2);
  const int32_t* first = batch.first_key.data<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(first, first + 8), (std::vector<int32_t>{0, 0, 2, 2, 0, 0, 0, 0}));
  EXPECT_EQ(count_valid(rows), 6);
  EXPECT_EQ(labels_of(rows).numel(), 8);
}

}  // namespace
}  // namespace tutti::train
