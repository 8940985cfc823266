#include "tutti/ops/row_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

std::vector<int64_t> integers(const Tensor& t) { return {t.data<int64_t>(), t.data<int64_t>() + t.numel()}; }

// The rows of `sparse` are those of `dense`, bit by bit, and the others of `dense` are -0.0.
void expect_rows_of(const RowGradients& sparse, const Tensor& dense) {
  const RowGradients g = sparse.trimmed();
  const int64_t columns = dense.extents()[1];
  int64_t next = 0;
  for (int64_t v = 0; v < dense.extents()[0]; ++v) {
    const float* row = dense.data<float>() + v * columns;
    if (next < g.rows.numel() && g.rows.data<int64_t>()[next] == v) {
      EXPECT_EQ(std::memcmp(row, g.values.data<float>() + next * columns, static_cast<size_t>(columns) * 4), 0)
          << "row " << v;
      ++next;
      continue;
    }
    for (int64_t d = 0; d < columns; ++d) EXPECT_TRUE(row[d] == 0.0f && std::signbit(row[d])) << "row " << v;
  }
  EXPECT_EQ(next, g.rows.numel());
}

TEST(EmbeddingRowGradients, AreTheRowsOfTheDenseGradient) {
  for (const int64_t grain : {1, 3, 128}) {
    const TokenGrainScope scope(grain);
    const Tensor grad = facets::sample_tensor(1, {40, 25, 19}),
                 indices = facets::sample_tensor(2, {40, 25}, DType::i64, 0, 700);
    expect_rows_of(embedding_row_gradients(grad, indices, 900), embedding_backward(grad, indices, 900));
    expect_rows_of(embedding_row_gradients(grad, indices, 900, 17), embedding_backward(grad, indices, 900, 17));
  }
}

TEST(EmbeddingRowGradients, LargeResultsWhichPassTheCachesHaveTheSameBits) {
  const TokenGrainScope scope(2);
  const int64_t vocab = 270001;  // 64 columns: 66 MiB
  const Tensor grad = facets::sample_tensor(1, {900, 64}),
               indices = facets::sample_tensor(2, {900}, DType::i64, 269500, 270000);
  expect_rows_of(embedding_row_gradients(grad, indices, vocab), embedding_backward(grad, indices, vocab));
}

// 64 columns are stored past the caches, of which 60 would not be whole vectors: those are not.
TEST(EmbeddingRowGradients, ManyRowsWhichPassTheCachesHaveTheSameBits) {
  const Tensor grad = facets::sample_tensor(1, {40000, 64}),
               indices = facets::sample_tensor(2, {40000}, DType::i64, 0, 300000);
  const RowGradients streamed = embedding_row_gradients(grad, indices, 300000),
                     stored = embedding_row_gradients(clone(narrow(grad, 1, 0, 60)), indices, 300000);
  ASSERT_GT(streamed.values.nbytes(), 8 << 20);
  expect_same_bits(streamed.rows, stored.rows);
  expect_same_bits(clone(narrow(streamed.values, 1, 0, 60)), stored.values);
}

TEST(EmbeddingRowGradients, HoldAsManyRowsAsThereCanBe) {
  const RowGradients few = embedding_row_gradients(ones({5, 2}), Tensor::of<int64_t>({7, 3, 7, 7, 3}), 100);
  EXPECT_EQ(few.rows.extents(), (Extents{5}));
  EXPECT_EQ(integers(few.rows), (std::vector<int64_t>{3, 7, -1, -1, -1}));
  EXPECT_EQ(few.count.item_int(), 2);
  EXPECT_EQ(few.values.data<float>()[2], 3.0f);
  EXPECT_TRUE(std::signbit(few.values.data<float>()[4]));
  const RowGradients all = embedding_row_gradients(ones({5, 2}), Tensor::of<int64_t>({1, 0, 1, 1, 0}), 2);
  EXPECT_EQ(integers(all.rows), (std::vector<int64_t>{0, 1}));
}

TEST(EmbeddingRowGradients, SortRowsOfHugeTables) {
  const int64_t vocab = int64_t{1} << 40;
  const RowGradients g = embedding_row_gradients(Tensor::of<float>({1, 2, 4, 8}, {4, 1}),
                                                 Tensor::of<int64_t>({vocab - 1, 5, int64_t{1} << 33, 5}), vocab)
                             .trimmed();
  EXPECT_EQ(integers(g.rows), (std::vector<int64_t>{5, int64_t{1} << 33, vocab - 1}));
  EXPECT_EQ(g.values.data<float>()[0], 10.0f);
  EXPECT_NE(message_of([] {
              embedding_row_gradients(ones({4, 1}), Tensor::of<int64_t>({0, 1, 2, 3}), INT64_MAX);
            }).find("look up in several calls"),
            std::string::npos);
}

TEST(EmbeddingRowGradients, HaveTheSameBitsOnAnyNumberOfThreads) {
  const Tensor grad = facets::sample_tensor(1, {5000, 70}),
               indices = facets::sample_tensor(2, {5000}, DType::i32, 0, 3000);
  RankContext& context = RankContext::current();
  context.set_threads(1);
  const RowGradients one = embedding_row_gradients(grad, indices, 3000);
  context.set_threads(4);
  const RowGradients four = embedding_row_gradients(grad, indices, 3000);
  context.set_threads(0);
  EXPECT_EQ(std::memcmp(one.values.raw_data(), four.values.raw_data(), static_cast<size_t>(one.values.nbytes())), 0);
  EXPECT_EQ(integers(one.rows), integers(four.rows));
}

TEST(EmbeddingRowGradients, NameWhatIsWrong) {
  EXPECT_EQ(
      message_of([] { embedding_row_gradients(ones({2, 3}), Tensor::of<int64_t>({1, 4}), 4); }),
      "embedding_row_gradients: index 4 at position [1] is out of range for 4 rows of the vocabulary; legal: 0 to 3");
  EXPECT_EQ(message_of([] { embedding_row_gradients(ones({2, 3}), Tensor::of<int64_t>({1, 2}), 4, 4); }),
            "embedding_row_gradients: padding_idx is 4; expected a row of a vocabulary of 4");
  EXPECT_THROW(embedding_row_gradients(ones({2, 3}), Tensor::of<int64_t>({1, 2, 3}), 4), UsageError);
}

TEST(AddRowGradients, AddsUsesInTheirOrder) {
  const float tiny = 0x1p-24f;
  const auto use = [](std::vector<float> values, std::vector<int64_t> rows) {
    const int64_t n = static_cast<int64_t>(rows.size());
    return embedding_row_gradients(Tensor::of<float>(values, {n, 1}), Tensor::of<int64_t>(rows), 10);
  };
  const TokenGrainScope grain(1);
  const RowGradients uses[] = {use({1.0f, 5.0f}, {4, 9}), use({tiny}, {4}), use({tiny, 3.0f}, {4, 0})};
  const RowGradients sum = add_row_gradients(uses, 10).trimmed();
  EXPECT_EQ(integers(sum.rows), (std::vector<int64_t>{0, 4, 9}));
  EXPECT_EQ(sum.values.data<float>()[1], (1.0f + tiny) + tiny);
  EXPECT_EQ(sum.values.data<float>()[2], 5.0f);
}

TEST(AddRowGradients, RefusesRowsOfALargerTable) {
  const RowGradients large = embedding_row_gradients(ones({1, 2}), Tensor::of<int64_t>({9}), 10),
                     uses[] = {large, large};
  EXPECT_EQ(message_of([&] { add_row_gradients(uses, 5); }),
            "add_row_gradients: a gradient of row 9; the table has 5 rows");
  EXPECT_EQ(message_of([&] { add_row_gradients({}, 5); }), "add_row_gradients: there are none to add");
}

TEST(EmbeddingBackward, LeavesThePaddingRowOut) {
  const Tensor dw = embedding_backward(ones({3, 2}), Tensor::of<int64_t>({1, 0, 1}), 3, 1);
  EXPECT_EQ(dw.data<float>()[0], 1.0f);
  EXPECT_EQ(dw.data<float>()[2], 0.0f);
  EXPECT_EQ(message_of([] { embedding(zeros({3, 2}), Tensor::of<int64_t>({0}), 3); }),
            "embedding: padding_idx is 3; expected a row of the weight [3, 2] f32 cpu");
}

}  // namespace
}  // namespace tutti
