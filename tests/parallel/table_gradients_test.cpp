// Row gradients of sparse tables over virtual shards: the bits of dense gradients and of one rank.
#include "tutti/parallel/table_gradients.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/nn/embedding.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kShards = 8, kRows = 40, kColumns = 5;

Tensor losses_of(const nn::EmbeddingBag& table) {
  // The last rows are never looked up; each shard looks up others.
  const Tensor found = table.forward(randint(0, kRows - 7, {6, 3}));
  return sum(mul(found, found), {.dims = {1}});
}

// The dense gradient of a table, and the same made of sparse ones, in steps 1 and 2.
struct Gradients {
  std::vector<Tensor> dense, sparse;
};
Gradients gradients_of(comm::ProcessGroup* group) {
  Gradients made;
  seed_all(5);
  nn::EmbeddingBag dense(kRows, kColumns), sparse(kRows, kColumns, BagMode::sum, {.sparse = true});
  nn::initialize(dense);
  nn::initialize(sparse);
  Shards shards(kShards, group, {dense.weight.leaf()}), others(kShards, group, {});
  TableGradients tables(kShards, group, {kRows});
  for (int64_t step = 1; step <= 2; ++step) {
    for (Shard& shard : shards.step(step)) shard.backward(losses_of(dense), 0.3);
    made.dense.push_back(shards.finish().gradients[0]);
    for (Shard& shard : others.step(step)) {
      shard.backward(losses_of(sparse), 0.3);
      tables.add(shard.index(), {sparse.take_row_gradients()});
    }
    others.finish();
    const RowGradients rows = tables.finish()[0];
    const Tensor whole = Tensor::empty({kRows, kColumns}, DType::f32);
    std::fill_n(whole.data<float>(), whole.numel(), -0.0f);
    for (int64_t i = 0; i < rows.rows.numel(); ++i)
      std::memcpy(whole.data<float>() + rows.rows.data<int64_t>()[i] * kColumns,
                  rows.values.data<float>() + i * kColumns, kColumns * sizeof(float));
    made.sparse.push_back(whole);
  }
  return made;
}

// Zeros of both signs are equal: a dense gradient has either where no shard has a term.
void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.extents(), b.extents());
  for (int64_t i = 0; i < a.numel(); ++i) {
    const float x = a.data<float>()[i] + 0.0f, y = b.data<float>()[i] + 0.0f;
    ASSERT_EQ(std::memcmp(&x, &y, sizeof x), 0) << "element " << i << ": " << x << " and " << y;
  }
}

TEST(TableGradients, HaveTheBitsOfDenseOnesOnAnyRanks) {
  const Gradients one = gradients_of(nullptr);
  EXPECT_NE(one.dense[0].data<float>()[0], one.dense[1].data<float>()[0]);
  for (size_t step : {0, 1}) expect_equal(one.sparse[step], one.dense[step]);
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    std::mutex mutex;
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Gradients several = gradients_of(&group);
      const std::lock_guard lock(mutex);
      for (size_t step : {0, 1}) expect_equal(several.sparse[step], one.sparse[step]);
    });
  }
}

RowGradients row(int64_t number, float value) {
  return {Tensor::of<int64_t>({number}), Tensor::of<float>({value}, {1, 1}), Tensor::scalar<int64_t>(1)};
}

TEST(TableGradients, ShardsComeInAnyOrder) {
  // Sums in f32 that depend on their order.
  const float values[] = {1e8f, 1.5f, -1e8f, 3.25f, 1e-3f, 7.0f, 1e7f, -2.0f};
  const float expected =
      ((values[0] + values[1]) + (values[2] + values[3])) + ((values[4] + values[5]) + (values[6] + values[7]));
  for (const int64_t stride : {1, 3, 5, 7}) {
    TableGradients tables(8, nullptr, {9, 2});
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t shard = i * stride % 8;
      tables.add(shard, {row(4, values[shard]), row(shard % 2, 1)});
    }
    const std::vector<RowGradients> sums = tables.finish();
    EXPECT_EQ(sums[0].rows.numel(), 1);
    EXPECT_EQ(sums[0].values.data<float>()[0], expected) << "stride " << stride;
    EXPECT_EQ(sums[1].rows.numel(), 2);
    EXPECT_EQ(sums[1].values.data<float>()[1], 4);
  }
}

TEST(TableGradients, AStepThatHasThrownIsRepeatedWithTheSameBits) {
  seed_all(5);
  nn::EmbeddingBag table(kRows, kColumns, BagMode::sum, {.sparse = true});
  nn::initialize(table);
  Shards shards(kShards, nullptr, {});
  TableGradients tables(kShards, nullptr, {kRows});
  const auto step = [&](int64_t failing) {
    for (Shard& shard : shards.step(1)) {
      shard.backward(losses_of(table), 0.3);
      TUTTI_CHECK(shard.index() != failing, "shard {} fails", failing);
      tables.add(shard.index(), {table.take_row_gradients()});
    }
    shards.finish();
    return tables.finish()[0];
  };
  const RowGradients expected = step(-1);
  EXPECT_EQ(message_of([&] { step(2); }), "shard 2 fails");
  table.abandon_row_gradients();
  tables.abandon();
  const RowGradients again = step(-1);
  ASSERT_EQ(again.rows.numel(), expected.rows.numel());
  EXPECT_EQ(std::memcmp(again.rows.raw_data(), expected.rows.raw_data(), static_cast<size_t>(again.rows.nbytes())), 0);
  EXPECT_EQ(
      std::memcmp(again.values.raw_data(), expected.values.raw_data(), static_cast<size_t>(again.values.nbytes())), 0);
}

TEST(TableGradients, ARefusedShardChangesNothing) {
  TableGradients tables(2, nullptr, {9, 9});
  tables.add(1, {row(1, 1), row(1, 1)});
  const RowGradients wide{Tensor::of<int64_t>({1}), Tensor::of<float>({1, 2}, {1, 2}), Tensor::scalar<int64_t>(1)};
  const RowGradients twice{Tensor::of<int64_t>({1, 1}), Tensor::of<float>({1, 2}, {2, 1}), Tensor::scalar<int64_t>(2)};
  EXPECT_EQ(message_of([&] { tables.add(0, {row(1, 1), wide}); }),
            "TableGradients: rows of table 1 are 2 wide; expected 1");
  EXPECT_EQ(message_of([&] { tables.add(0, {row(1, 1), row(9, 1)}); }),
            "TableGradients: table 1 has a gradient of row 9; expected ascending rows of its 9");
  EXPECT_EQ(message_of([&] { tables.add(0, {row(1, 1), twice}); }),
            "TableGradients: table 1 has a gradient of row 1; expected ascending rows of its 9");
  tables.add(0, {row(1, 1), row(2, 1)});
  const std::vector<RowGradients> sums = tables.finish();
  EXPECT_EQ(sums[0].values.data<float>()[0], 2);
  EXPECT_EQ(sums[1].rows.numel(), 2);
  TableGradients one(1, nullptr, {9});
  EXPECT_EQ(message_of([&] { one.add(0, {row(9, 1)}); }),
            "TableGradients: table 0 has a gradient of row 9; expected ascending rows of its 9");
}

TEST(TableGradients, NameTheShardThatTwoRanksHaveAdded) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    TableGradients tables(4, &group, {9});
    if (group.rank() == 0) tables.add(2, {row(1, 1)});
    else
      for (int64_t shard = 0; shard < 4; ++shard) tables.add(shard, {row(1, 1)});
    EXPECT_EQ(message_of([&] { tables.finish(); }), "TableGradients: virtual shard 2 was added twice in a step");
  });
}

TEST(TableGradients, BytesOfAnotherRankAreChecked) {
  // first, count, rows, columns, then row numbers.
  const std::vector<std::pair<std::vector<int64_t>, std::string>> cases{
      {{0, 3, 0, 1}, "TableGradients: a rank has sent 3 virtual shards from 0 on of 4"},
      {{3, 2, 0, 1}, "TableGradients: a rank has sent 2 virtual shards from 3 on of 4"},
      {{0, 2, int64_t{1} << 60, 1}, "TableGradients: a rank has sent 1152921504606846976 rows of 1 values in 0 bytes"},
      {{0, 2, int64_t{1} << 32, int64_t{1} << 32},
       "TableGradients: a rank has sent 4294967296 rows of 4294967296 values in 0 bytes"},
      {{0, 2, -1, 1}, "TableGradients: a rank has sent -1 rows of 1 values in 0 bytes"},
      {{0, 2, 1, 0, 9}, "TableGradients: a rank has sent row 9 of a table of 9"},
      {{0}, "TableGradients: the bytes of a rank end 8 before they should"}};
  for (const auto& [words, expected] : cases)
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      if (group.rank() == 1) {
        group.all_gather_bytes(std::string(reinterpret_cast<const char*>(words.data()), words.size() * 8));
        return;
      }
      TableGradients tables(4, &group, {9});
      EXPECT_THROW(
          {
            try {
              tables.finish();
            } catch (const EnvironmentError& error) {
              EXPECT_EQ(std::string(error.what()), expected);
              throw;
            }
          },
          EnvironmentError);
    });
}

TEST(TableGradients, RefuseStepsThatAreNotWhole) {
  EXPECT_EQ(message_of([] { TableGradients(6, nullptr, {}); }),
            "TableGradients: 6 virtual shards; expected a power of two");
  TableGradients tables(4, nullptr, {9});
  tables.add(2, {row(1, 1)});
  EXPECT_EQ(message_of([&] { tables.add(2, {row(1, 1)}); }),
            "TableGradients: virtual shard 2 was added twice in a step");
  tables.add(3, {row(1, 1)});
  EXPECT_EQ(message_of([&] { tables.add(3, {row(1, 1)}); }),
            "TableGradients: virtual shard 3 was added twice in a step");
  EXPECT_EQ(message_of([&] { tables.add(4, {row(1, 1)}); }), "TableGradients: virtual shard 4 of 4");
  EXPECT_EQ(message_of([&] { tables.add(0, {}); }), "TableGradients: gradients of 0 tables; expected 1");
  tables.add(0, {row(1, 1)});
  EXPECT_EQ(message_of([&] { tables.finish(); }), "TableGradients: virtual shard 1 of 4 was not added in this step");
  for (int64_t shard = 0; shard < 4; ++shard) tables.add(shard, {row(1, 1)});
  EXPECT_EQ(tables.finish()[0].values.data<float>()[0], 4) << "a step after one that failed";
}

}  // namespace
}  // namespace tutti::parallel
