#include "tutti/ops/embedding_bag.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/message_of.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding_bag_backward.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.extents() == b.extents() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

// Rows [1 10] [2 20] [4 40] [8 80].
Tensor table() { return Tensor::of<float>({1, 10, 2, 20, 4, 40, 8, 80}, {4, 2}); }
std::vector<float> floats(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

TEST(EmbeddingBag, PoolsEveryBag) {
  const Tensor indices = Tensor::of<int64_t>({0, 1, 3, 3, 2}), offsets = Tensor::of<int64_t>({0, 3, 3});
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets)), (std::vector<float>{11, 110, 0, 0, 12, 120}));
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets, {.mode = BagMode::mean})),
            (std::vector<float>{11 / 3.0f, 110 / 3.0f, 0, 0, 6, 60}));
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets, {.mode = BagMode::max})),
            (std::vector<float>{8, 80, 0, 0, 8, 80}));
  const Tensor last = Tensor::of<int32_t>({0, 3, 3, 5});
  EXPECT_EQ(floats(embedding_bag(table(), indices, last, {.include_last_offset = true})),
            (std::vector<float>{11, 110, 0, 0, 12, 120}));
  EXPECT_EQ(floats(embedding_bag(table(), Tensor::of<int32_t>({0, 1, 3, 2}, {2, 2}))),
            (std::vector<float>{3, 30, 12, 120}));
  const Tensor weights = Tensor::of<float>({1, 2, 0.5f, 1, 0.25f});
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets, {.per_sample_weights = weights})),
            (std::vector<float>{9, 90, 0, 0, 9, 90}));
}

TEST(EmbeddingBag, LeavesPaddingOut) {
  const Tensor indices = Tensor::of<int64_t>({3, 1, 0, 3}), offsets = Tensor::of<int64_t>({0, 3});
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets, {.padding_idx = 3})), (std::vector<float>{3, 30, 0, 0}));
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets, {.mode = BagMode::mean, .padding_idx = 3})),
            (std::vector<float>{1.5f, 15, 0, 0}));
  EXPECT_EQ(floats(embedding_bag(table(), indices, offsets, {.mode = BagMode::max, .padding_idx = 3})),
            (std::vector<float>{2, 20, 0, 0}));
}

TEST(EmbeddingBag, AddsInTheOrderOfTheBagInF32) {
  const Tensor narrow = full({1, 1}, 1.0, DType::bf16);
  EXPECT_EQ(embedding_bag(narrow, zeros({300}, DType::i64), zeros({1}, DType::i64)).item(),
            300.0);  // 256 + 1 is 256 in bf16
  const Tensor rows = Tensor::of<float>({1.0f, 0x1p-24f}, {2, 1});
  const Tensor bags = Tensor::of<int64_t>({0, 1, 1, 1, 1, 0}, {2, 3});
  EXPECT_EQ(floats(embedding_bag(rows, bags)),
            (std::vector<float>{(1.0f + 0x1p-24f) + 0x1p-24f, (0x1p-24f + 0x1p-24f) + 1.0f}));
}

TEST(EmbeddingBag, TakesTheFirstOfEqualMaximaAndNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor rows = Tensor::of<float>({1, -1, 1, nan, 0, -1}, {3, 2});
  const BagResult r = embedding_bag_with_entries(rows, Tensor::of<int64_t>({0, 1, 2, 2, 1}),
                                                 Tensor::of<int64_t>({0, 3, 3}), {.mode = BagMode::max});
  EXPECT_EQ(std::vector<int64_t>(r.chosen.data<int64_t>(), r.chosen.data<int64_t>() + 6),
            (std::vector<int64_t>{0, 1, -1, -1, 4, 4}));
  EXPECT_TRUE(std::isnan(r.pooled.data<float>()[1]));
  EXPECT_EQ(r.pooled.data<float>()[2], 0.0f);
}

TEST(EmbeddingBag, NamesTheBagAndTheIndex) {
  const Tensor w = zeros({4, 2}), offsets = Tensor::of<int64_t>({0, 2});
  EXPECT_EQ(message_of([&] { embedding_bag(w, Tensor::of<int64_t>({0, 1, 2, 4}), offsets); }),
            "embedding_bag: index 4 in bag 1, entry 1 (position 3 of the indices), is out of range for 4 rows; legal: "
            "0 to 3");
  EXPECT_EQ(message_of([&] { embedding_bag(w, Tensor::of<int32_t>({0, -1, 2}), offsets, {.mode = BagMode::max}); }),
            "embedding_bag_max: index -1 in bag 0, entry 1 (position 1 of the indices), is out of range for 4 rows; "
            "legal: 0 to 3");
  const Tensor three = Tensor::of<int64_t>({0, 1, 2});
  const auto with = [&](std::vector<int64_t> begins, bool last = false) {
    return message_of([&] { embedding_bag(w, three, Tensor::of<int64_t>(begins), {.include_last_offset = last}); });
  };
  EXPECT_EQ(with({1, 2}), "embedding_bag: 3 indices in bags, but the first bag begins at offset 1; expected 0");
  EXPECT_EQ(with({}),
            "embedding_bag: 3 indices in bags, but the first bag begins at offset (there is none); expected 0");
  EXPECT_EQ(with({0, 2, 1}), "embedding_bag: bag 2 begins at offset 1, before bag 1 at 2; offsets must not fall");
  EXPECT_EQ(with({0, 4}), "embedding_bag: bag 1 begins at offset 4, beyond the 3 indices");
  EXPECT_EQ(with({0, 2}, true),
            "embedding_bag: with include_last_offset the last offset is the number of indices, 3; it is 2");
  EXPECT_EQ(with({}, true), "embedding_bag: include_last_offset needs at least one offset, the number of indices");
}

TEST(EmbeddingBag, RefusesWhatItCannotDo) {
  const Tensor w = zeros({4, 2}), indices = Tensor::of<int64_t>({0, 1}), offsets = Tensor::of<int64_t>({0});
  EXPECT_EQ(
      message_of([&] { embedding_bag(w, indices, offsets, {.mode = BagMode::max, .per_sample_weights = ones({2})}); }),
      "embedding_bag: per_sample_weights weigh the terms of a sum; the mode is max");
  EXPECT_EQ(
      message_of([&] { embedding_bag(w, indices, offsets, {.per_sample_weights = ones({3})}); }),
      "embedding_bag: per_sample_weights are [3] f32 cpu; expected floats of the sizes of the indices [2] i64 cpu");
  EXPECT_EQ(message_of([&] { embedding_bag(w, indices, offsets, {.padding_idx = 4}); }),
            "embedding_bag: padding_idx is 4; expected a row of the weight [4, 2] f32 cpu");
  EXPECT_EQ(message_of([&] { embedding_bag(w, indices); }),
            "embedding_bag: without offsets the indices are [bags, length]; got [2] i64 cpu");
  EXPECT_EQ(message_of([&] { embedding_bag_backward(zeros({1, 2}), indices, offsets, 4, {.mode = BagMode::max}); }),
            "embedding_bag_backward: for max it needs the chosen entries, i64 of the sizes of the gradient [1, 2] f32 "
            "cpu; got none");
  EXPECT_EQ(message_of([&] { embedding_bag_backward(zeros({3, 2}), indices, offsets, 4); }),
            "embedding_bag_backward: the gradient is [3, 2] f32 cpu for 1 bags");
}

TEST(EmbeddingBagBackward, ChainsInsideARangeOfBagsAndHalvesOverRanges) {
  const TokenGrainScope grain(2);
  // Bags (a) (b) | (c c) (none) | (e): ranges of two bags. (a + b) + (c + c), then + e.
  const float a = 1.0f, b = 0x1p-24f, c = 0x1p-25f, e = 0x1p-24f;
  const Tensor grad = Tensor::of<float>({a, b, c, 9, e}, {5, 1});
  const Tensor dw = embedding_bag_backward(grad, zeros({5}, DType::i64), Tensor::of<int64_t>({0, 1, 2, 4, 4}), 1);
  EXPECT_EQ(*dw.data<float>(), ((a + b) + (c + c)) + e);
}

TEST(EmbeddingBagBackward, SparseRowsHaveTheBitsOfTheDenseOnesOnAnyNumberOfThreads) {
  const int64_t vocab = 800, bags = 300;
  const Tensor indices = facets::sample_tensor(2, {bags * 9}, DType::i64, 0, 500),
               weight = facets::sample_tensor(3, {vocab, 70});
  std::vector<int64_t> begins;
  for (int64_t b = 0; b < bags; ++b) begins.push_back(b % 3 == 0 ? b * 9 : b * 9 + 4);
  const Tensor offsets = Tensor::of<int64_t>(begins), grad = facets::sample_tensor(1, {bags, 70}),
               weights = facets::sample_tensor(4, {bags * 9});
  RankContext& context = RankContext::current();
  for (const BagOptions& options : {BagOptions{}, BagOptions{.mode = BagMode::mean, .padding_idx = 3},
                                    BagOptions{.mode = BagMode::max}, BagOptions{.per_sample_weights = weights}}) {
    context.set_threads(1);
    const BagResult one = embedding_bag_with_entries(weight, indices, offsets, options);
    const Tensor dense = embedding_bag_backward(grad, indices, offsets, vocab, options, one.chosen);
    context.set_threads(4);
    EXPECT_TRUE(same_bits(embedding_bag(weight, indices, offsets, options), one.pooled));
    EXPECT_TRUE(same_bits(embedding_bag_backward(grad, indices, offsets, vocab, options, one.chosen), dense));
    const RowGradients sparse =
        embedding_bag_row_gradients(grad, indices, offsets, vocab, options, one.chosen).trimmed();
    context.set_threads(0);
    for (int64_t i = 0; i < sparse.rows.numel(); ++i) {
      const int64_t row = sparse.rows.data<int64_t>()[i];
      EXPECT_EQ(std::memcmp(sparse.values.data<float>() + i * 70, dense.data<float>() + row * 70, 280), 0) << row;
    }
  }
}

}  // namespace
}  // namespace tutti
