#include "tutti/train/data/batch.h"

#include <gtest/gtest.h>

#include "tutti/ops/cross_entropy.h"

namespace tutti::train {
namespace {

TEST(ToBatch, FindsTheFirstTokenOfEachDocument) {
  // Row 0 holds the end of one document and the start of another; row 1 is inside one.
  const TokenRows rows{
      2, 4, {5, 6, 7, 8, 9, 10, 11, 12}, {6, kIgnoreLabel, 8, 9, 10, 11, 12, kIgnoreLabel}, {0, 1, 0, 1, 0, 1, 2, 3}};
  const models::TokenBatch batch = to_batch(rows);
  EXPECT_EQ(batch.rows, 2);
  const int32_t* first = batch.first_key.data<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(first, first + 8), (std::vector<int32_t>{0, 0, 2, 2, 0, 0, 0, 0}));
  EXPECT_EQ(count_valid(rows), 6);
  EXPECT_EQ(labels_of(rows).numel(), 8);
}

}  // namespace
}  // namespace tutti::train
