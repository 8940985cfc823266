#include "tutti/ops/sort.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/topk.h"

namespace tutti {
namespace {

using Values = std::vector<int64_t>;

Values values(const Tensor& x) { return {x.data<int64_t>(), x.data<int64_t>() + x.numel()}; }

const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Sort, IsStableInBothDirections) {
  const Tensor x = Tensor::of<float>({2, 1, 2, 1});
  EXPECT_EQ(values(sort(x).indices), (Values{1, 3, 0, 2}));
  EXPECT_EQ(values(argsort(x, 0, true)), (Values{0, 2, 1, 3}));
}

TEST(Sort, PutsNanAboveAllNumbers) {
  const Tensor x = Tensor::of<float>({INFINITY, kNan, -1, kNan});
  EXPECT_EQ(values(sort(x).indices), (Values{2, 0, 1, 3}));
  EXPECT_EQ(values(argsort(x, 0, true)), (Values{1, 3, 0, 2}));
}

TEST(Sort, TreatsTheZerosAsEqual) {
  EXPECT_EQ(values(sort(Tensor::of<float>({0.0f, -0.0f, 0.0f})).indices), (Values{0, 1, 2}));
}

TEST(Sort, OrdersTheWholeRangeOfIntegers) {
  const Tensor x =
      Tensor::of<int64_t>({0, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), -1});
  EXPECT_EQ(values(sort(x).indices), (Values{2, 3, 0, 1}));
  EXPECT_THROW(sort(full({}, 1.0)), UsageError);
}

TEST(Topk, TakesTheLowestIndexOfEqualElements) {
  const Tensor x = Tensor::of<float>({1, 3, 3, 2, 3});
  EXPECT_EQ(values(topk(x, 2).indices), (Values{1, 2}));
  EXPECT_EQ(values(topk(x, 2, {.largest = false}).indices), (Values{0, 3}));
}

TEST(Topk, RefusesMoreThanThereIs) {
  EXPECT_THROW(topk(Tensor::of<float>({1, 2}), 3), UsageError);
  EXPECT_EQ(topk(Tensor::of<float>({1, 2}), 0).values.numel(), 0);
}

TEST(Creation, CountsFillsAndMasks) {
  EXPECT_EQ(values(arange(7, 0, -3)), (Values{7, 4, 1}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_THROW(arange(0, 3, 0), UsageError);
  EXPECT_THROW(full({-1}, 0.0), UsageError);
  EXPECT_TRUE(std::signbit(*full({1}, -0.0).data<float>()));
  const Tensor mask = tril_mask(2, 3);
  EXPECT_EQ((std::vector<bool>(mask.data<bool>(), mask.data<bool>() + 6)),
            (std::vector<bool>{true, false, false, true, true, false}));
}

TEST(Copy, WritesIntoAView) {
  const Tensor x = zeros({2, 3});
  copy_(x.view_as({2}, {3}, 1), Tensor::of<int64_t>({4, 5}));
  EXPECT_EQ(x.data<float>()[1], 4.0f);
  EXPECT_EQ(x.data<float>()[4], 5.0f);
  EXPECT_THROW(copy_(x, zeros({4, 2, 3})), UsageError);
  EXPECT_NE(clone(x).raw_data(), x.raw_data());
  EXPECT_EQ(contiguous(x).raw_data(), x.raw_data());
}

}  // namespace
}  // namespace tutti
