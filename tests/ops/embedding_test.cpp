#include "tutti/ops/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

TEST(Embedding, NamesTheIndexThatIsOutOfRange) {
  const Tensor weight = zeros({5, 3});
  EXPECT_EQ(
      message_of([&] { embedding(weight, Tensor::of<int64_t>({0, 4, 5, 1}, {2, 2})); }),
      "embedding: index 5 at position [1, 0] is out of range for 5 rows of the weight [5, 3] f32 cpu; legal: 0 to 4");
  EXPECT_EQ(message_of([] { embedding(zeros({0, 3}), Tensor::of<int64_t>({0})); }),
            "embedding: index 0 at position [0] is out of range for 0 rows of the weight [0, 3] f32 cpu; no index is "
            "legal where there is nothing");
  EXPECT_THROW(embedding(weight, Tensor::of<int32_t>({-1})), UsageError);
  EXPECT_THROW(embedding(weight, Tensor::of<float>({1})), UsageError);
  EXPECT_THROW(embedding(zeros({5}), Tensor::of<int64_t>({1})), UsageError);
}

TEST(EmbeddingBackward, ChainsInsideARangeAndHalvesOverRanges) {
  const TokenGrainScope grain(2);
  // Ranges (a b)(c d)(e), all row 0: ((a + b) + (c + d)) + e.
  const float a = 1.0f, b = 0x1p-24f, c = 0x1p-24f, d = 0x1p-25f, e = 0x1p-24f;
  const Tensor grad = Tensor::of<float>({a, b, c, d, e}, {5, 1});
  const Tensor rows = zeros({5}, DType::i64);
  EXPECT_EQ(*embedding_backward(grad, rows, 1).data<float>(), ((a + b) + (c + d)) + e);
}

TEST(EmbeddingBackward, SkipsRangesWithoutTheRow) {
  const TokenGrainScope grain(1);
  // Row 1 stands at positions 0, 3 and 4 of five: ranges {0 1 2} and {3 4}.
  const float a = 1.0f, d = 0x1p-24f, e = 0x1p-24f;
  const Tensor grad = Tensor::of<float>({a, 9, 9, d, e}, {5, 1});
  const Tensor dw = embedding_backward(grad, Tensor::of<int64_t>({1, 0, 0, 1, 1}), 3);
  EXPECT_EQ(dw.data<float>()[1], a + (d + e));
  EXPECT_EQ(dw.data<float>()[0], 18.0f);
}

TEST(EmbeddingBackward, GivesRowsWithoutATokenTheIdentity) {
  const Tensor dw = embedding_backward(ones({2, 3}), Tensor::of<int64_t>({1, 1}), 3);
  EXPECT_TRUE(std::signbit(dw.data<float>()[0]));
  EXPECT_EQ(dw.data<float>()[3], 2.0f);
}

TEST(EmbeddingBackward, HasTheSameBitsOnAnyNumberOfThreads) {
  const Tensor grad = facets::sample_tensor(1, {3000, 200}), rows = facets::sample_tensor(2, {3000}, DType::i64, 0, 90);
  RankContext& context = RankContext::current();
  context.set_threads(1);
  const Tensor one = embedding_backward(grad, rows, 100);
  context.set_threads(4);
  const Tensor four = embedding_backward(grad, rows, 100);
  context.set_threads(0);
  EXPECT_EQ(std::memcmp(one.raw_data(), four.raw_data(), static_cast<size_t>(one.nbytes())), 0);
}

TEST(EmbeddingBackward, SumsNarrowGradientsInF32) {
  const Tensor grad = full({300, 1}, 1.0, DType::bf16);
  const Tensor dw = embedding_backward(grad, zeros({300}, DType::i32), 1);
  EXPECT_EQ(dw.dtype(), DType::f32);
  EXPECT_EQ(*dw.data<float>(), 300.0f);
}

TEST(Gather, NamesTheIndexThatIsOutOfRange) {
  EXPECT_EQ(
      message_of([&] { gather(zeros({2, 3}), 1, Tensor::of<int64_t>({0, 3}, {1, 2})); }),
      "gather: index 3 at position [0, 1] is out of range for 3 elements of dim 1 of [2, 3] f32 cpu; legal: 0 to 2");
  EXPECT_THROW(gather(zeros({2, 3}), 1, Tensor::of<int64_t>({0, 1, 2}, {3, 1})), UsageError);
  EXPECT_THROW(index_select(zeros({2, 3}), 0, Tensor::of<int64_t>({2})), UsageError);
}

TEST(Scatter, LetsTheLastWriteWin) {
  const Tensor y = scatter(zeros({3}), 0, Tensor::of<int64_t>({1, 1, 2}), Tensor::of<float>({5, 6, 7}));
  EXPECT_EQ(y.data<float>()[1], 6.0f);
  EXPECT_THROW(scatter(zeros({3}), 0, Tensor::of<int64_t>({3}), zeros({1})), UsageError);
  EXPECT_THROW(scatter(zeros({3}), 0, Tensor::of<int64_t>({1}), zeros({2})), UsageError);
}

TEST(ScatterAdd, AddsInAscendingOrderOfTheSource) {
  const Tensor y = scatter_add(full({1}, 1.0), 0, zeros({2}, DType::i64), Tensor::of<float>({0x1p-24f, 0x1p-24f}));
  EXPECT_EQ(*y.data<float>(), (1.0f + 0x1p-24f) + 0x1p-24f);
}

TEST(ScatterAdd, RoundsNarrowFloatsOnce) {
  const Tensor y = scatter_add(full({1}, 256.0, DType::bf16), 0, zeros({2}, DType::i64), full({2}, 1.0, DType::bf16));
  EXPECT_EQ(y.item(), 258.0);  // 256 + 1 is 256 in bf16
}

}  // namespace
}  // namespace tutti
