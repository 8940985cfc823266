#include "tutti/ops/slice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/diagonal.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/pad.h"
#include "tutti/ops/unfold.h"

namespace tutti {
namespace {

std::vector<int64_t> values(const Tensor& x) {
  const Tensor dense = to_contiguous(x);
  return {dense.data<int64_t>(), dense.data<int64_t>() + dense.numel()};
}
using Values = std::vector<int64_t>;

TEST(Slice, FollowsPythonAtTheEnds) {
  const Tensor x = arange(6);
  EXPECT_EQ(values(slice(x, 0, 1, 5, 2)), (Values{1, 3}));
  EXPECT_EQ(values(slice(x, 0, -2, 100)), (Values{4, 5}));
  EXPECT_EQ(values(slice(x, 0, -100, 2)), (Values{0, 1}));
  EXPECT_EQ(values(slice(x, 0, 4, 2)), Values{});
  EXPECT_THROW(slice(x, 0, 0, 6, 0), UsageError);
}

TEST(Slice, IsAView) {
  const Tensor x = arange(6);
  *slice(x, 0, 2, 3).data<int64_t>() = 77;
  EXPECT_EQ(values(x), (Values{0, 1, 77, 3, 4, 5}));
}

TEST(Narrow, RefusesARangeThatLeavesTheDim) {
  EXPECT_EQ(values(narrow(arange(6), 0, -3, 2)), (Values{3, 4}));
  EXPECT_THROW(narrow(arange(6), 0, 4, 3), UsageError);
}

TEST(Select, TakesTheDimAway) {
  const Tensor x = arange(6).view_as({2, 3}, {3, 1}, 0);
  EXPECT_EQ(values(select(x, 1, -1)), (Values{2, 5}));
  EXPECT_THROW(select(x, 0, 2), UsageError);
}

TEST(Split, CoversTheDim) {
  const auto pieces = split(arange(7), 3);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(values(pieces[2]), (Values{6}));
  EXPECT_EQ(chunk(arange(7), 4).size(), 4u);
  EXPECT_EQ(chunk(arange(9), 4).size(), 3u);
  EXPECT_EQ(split(arange(7), std::vector<int64_t>{2, 5})[1].extent(0), 5);
  EXPECT_THROW(split(arange(7), std::vector<int64_t>{2, 4}), UsageError);
}

TEST(SliceBackward, FillsWithTheIdentityOfTheSum) {
  const Tensor g = slice_backward(full({2}, 3.0), 0, 5, 1, 2);
  EXPECT_EQ(g.data<float>()[1], 3.0f);
  EXPECT_EQ(g.data<float>()[3], 3.0f);
  EXPECT_TRUE(std::signbit(g.data<float>()[0]) && std::signbit(g.data<float>()[4]));
}

TEST(Expand, RepeatsWithoutMemory) {
  const Tensor x = arange(3);
  const Tensor y = expand(x, {2, -1});
  EXPECT_EQ(y.strides()[0], 0);
  EXPECT_EQ(values(y), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_THROW(expand(x, {4}), UsageError);
  EXPECT_THROW(expand(x, {-1, 3}), UsageError);
}

TEST(ExpandBackward, AddsByPureHalving) {
  // 5 terms: ((a + b) + c) + (d + e). With these values every other order rounds differently.
  const Tensor g = Tensor::of<float>({1.0f, 0x1p-24f, 0x1p-24f, 0x1p-24f, 0x1p-24f}, {5, 1});
  const float expected = ((1.0f + 0x1p-24f) + 0x1p-24f) + (0x1p-24f + 0x1p-24f);
  EXPECT_EQ(*expand_backward(g, {1, 1}).data<float>(), expected);
}

TEST(Cat, NamesTheTensorThatDoesNotFit) {
  try {
    cat({zeros({2, 3}), zeros({2, 4})}, 0);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "cat: tensor 1 is [2, 4] f32 cpu, tensor 0 is [2, 3] f32 cpu; they may differ in dim 0 only");
  }
  EXPECT_THROW(cat({zeros({2}), zeros({2}, DType::f64)}), UsageError);
  EXPECT_THROW(cat(std::span<const Tensor>{}), UsageError);
}

TEST(Stack, MakesANewDim) {
  const Tensor y = stack({arange(2), arange(2, 4)}, 1);
  EXPECT_EQ(y.extents(), (Extents{2, 2}));
  EXPECT_EQ(values(y), (Values{0, 2, 1, 3}));
}

TEST(Pad, RefusesNegativeCounts) { EXPECT_THROW(pad(arange(3), 0, -1, 0), UsageError); }

TEST(Roll, MovesElementsAround) {
  EXPECT_EQ(values(roll(arange(5), 2, 0)), (Values{3, 4, 0, 1, 2}));
  EXPECT_EQ(values(roll(arange(5), -6, 0)), (Values{1, 2, 3, 4, 0}));
}

TEST(Roll, IsACopyWhereNothingMoves) {
  for (const int64_t shift : {0, 5, -10}) {
    const Tensor x = arange(5), rolled = roll(x, shift, 0);
    add_(rolled, 1);
    EXPECT_EQ(values(x), (Values{0, 1, 2, 3, 4})) << shift;
  }
}

TEST(Diagonal, IsAViewOfTheStorage) {
  const Tensor x = arange(9).view_as({3, 3}, {3, 1}, 0);
  EXPECT_EQ(values(diagonal(x)), (Values{0, 4, 8}));
  EXPECT_EQ(values(diagonal(x, 1)), (Values{1, 5}));
  EXPECT_THROW(diagonal(x, 0, 1, -1), UsageError);
}

TEST(Unfold, RefusesWindowsThatDoNotFit) {
  EXPECT_EQ(unfold(arange(7), 0, 3, 2).extents(), (Extents{3, 3}));
  EXPECT_THROW(unfold(arange(2), 0, 3, 1), UsageError);
}

}  // namespace
}  // namespace tutti
