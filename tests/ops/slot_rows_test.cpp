#include "tutti/ops/slot_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

using facets::sample_tensor;

std::vector<int64_t> list_of(const Tensor& t) { return {t.data<int64_t>(), t.data<int64_t>() + t.numel()}; }

// Different experts for each token, in any order.
Tensor random_ids(int64_t tokens, int64_t slots, int64_t experts, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> ids, all(static_cast<size_t>(experts));
  for (int64_t t = 0; t < tokens; ++t) {
    for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<int64_t>(e);
    std::shuffle(all.begin(), all.end(), random);
    ids.insert(ids.end(), all.begin(), all.begin() + slots);
  }
  return Tensor::of(ids, {tokens, slots});
}

TEST(SortSlots, PutsSlotsInOrderOfExpertsAndThenOfTokens) {
  const SlotOrder order = sort_slots(Tensor::of<int64_t>({2, 0, 1, 2, 0, 2}, {3, 2}));
  EXPECT_EQ(list_of(order.slot_of_row), (std::vector<int64_t>{1, 4, 2, 0, 3, 5}));
  EXPECT_EQ(list_of(order.row_of_slot), (std::vector<int64_t>{3, 0, 2, 4, 1, 5}));
  EXPECT_EQ(order.slots_per_token, 2);
}

TEST(DispatchRows, CopiesTheRowOfEachSlotsToken) {
  const Tensor x = sample_tensor(1, {37, 19}, DType::bf16);
  const SlotOrder order = sort_slots(random_ids(37, 3, 5, 1));
  expect_same_bits(dispatch_rows(x, order), index_select(x, 0, floordiv(order.slot_of_row, 3)), "rows");
}

// The contract of N8: f32, the order of slots, one rounding.
TEST(CombineRows, AddsInTheOrderOfSlotsAndRoundsOnce) {
  const int64_t T = 37, K = 4, D = 21;
  const SlotOrder order = sort_slots(random_ids(T, K, 9, 2));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor y = sample_tensor(1, {T * K, D}, dtype), w = sample_tensor(2, {T, K});
    const Tensor by_slot = reshape(cast(index_select(y, 0, order.row_of_slot), DType::f32), {T, K, D});
    Tensor weighted, plain;
    for (int64_t k = 0; k < K; ++k) {
      const Tensor row = select(by_slot, 1, k), term = mul(row, narrow(w, 1, k, 1));
      weighted = k == 0 ? term : add(weighted, term);
      plain = k == 0 ? row : add(plain, row);
    }
    expect_same_bits(combine_rows(y, order, w), cast(weighted, dtype), "weighted");
    expect_same_bits(combine_rows(y, order), cast(plain, dtype), "not weighted");
  }
}

TEST(CombineRows, TakesNoTokens) {
  const SlotOrder order = sort_slots(zeros({0, 2}, DType::i64));
  EXPECT_EQ(dispatch_rows(zeros({0, 3}), order).extents(), (Extents{0, 3}));
  EXPECT_EQ(combine_rows(zeros({0, 3}), order, zeros({0, 2})).extents(), (Extents{0, 3}));
}

TEST(SlotRowsErrors, NameTheOperandAndWhatIsExpected) {
  const SlotOrder order = sort_slots(Tensor::of<int64_t>({0, 1, 1, 0}, {2, 2}));
  EXPECT_EQ(message_of([&] { dispatch_rows(zeros({3, 4}), order); }),
            "dispatch_rows: a list of the order is [4]; expected one element for each of 6 slots");
  EXPECT_EQ(message_of([&] { dispatch_rows(zeros({2, 4}, DType::i64), order); }),
            "dispatch_rows: the rows are [2, 4] i64 cpu; expected floats (f64, f32, bf16, f16) of two dims");
  EXPECT_EQ(message_of([&] { combine_rows(zeros({4, 4}), order, zeros({2, 3})); }),
            "combine_rows: the weights are [2, 3] f32 cpu; expected f32 or f64 [2, 2]");
  SlotOrder odd{Tensor::of<int64_t>({0, 1, 2}), Tensor::of<int64_t>({0, 1, 2}), 2};
  EXPECT_EQ(message_of([&] { combine_rows(zeros({3, 4}), odd); }),
            "combine_rows: 3 rows with 2 slots per token; expected a multiple");
  odd.slots_per_token = 0;
  EXPECT_EQ(message_of([&] { combine_rows(zeros({3, 4}), odd); }),
            "combine_rows: 0 slots per token; expected at least 1");
  EXPECT_EQ(message_of([&] { sort_slots(zeros({4}, DType::i64)); }),
            "sort_slots: the ids are [4] i64 cpu; expected [tokens, choices]");
  const SlotOrder beyond{Tensor::of<int64_t>({0, 1, 2, 4}), order.row_of_slot, 2};
  EXPECT_EQ(
      message_of([&] { dispatch_rows(zeros({2, 4}), beyond); }),
      "dispatch_rows: row 1 is that of slot 1, whose row is given as 2; the lists must be the inverse of each other");
}

}  // namespace
}  // namespace tutti
