#include "tutti/ops/nonzero.h"

#include <gtest/gtest.h>

#include <limits>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"

namespace tutti {
namespace {

std::vector<int64_t> list(const Tensor& x) {
  const Tensor dense = to_contiguous(x);
  return {dense.data<int64_t>(), dense.data<int64_t>() + dense.numel()};
}

TEST(Nonzero, RowsAreIndicesInRowMajorOrder) {
  const Tensor x = Tensor::of<int32_t>({0, 3, 0, -1, 0, 7}).view_as({2, 3}, {3, 1}, 0);
  EXPECT_EQ(list(nonzero(x)), (std::vector<int64_t>{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(list(nonzero(permute(x, {1, 0}))), (std::vector<int64_t>{0, 1, 1, 0, 2, 1}));
}

TEST(Nonzero, NanCountsAndTheNegativeZeroDoesNot) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(list(nonzero(Tensor::of<float>({nan, -0.0f, 0.0f, std::numeric_limits<float>::denorm_min()}))),
            (std::vector<int64_t>{0, 3}));
}

TEST(Nonzero, NothingAndNoDims) {
  EXPECT_EQ(nonzero(Tensor::of<float>({0, 0})).extents(), (Extents{0, 1}));
  EXPECT_EQ(nonzero(Tensor::empty({3, 0})).extents(), (Extents{0, 2}));
  EXPECT_EQ(nonzero(Tensor::scalar(true)).extents(), (Extents{1, 0}));
  EXPECT_EQ(nonzero(Tensor::scalar(false)).extents(), (Extents{0, 0}));
}

TEST(Nonzero, OfAGivenSize) {
  const Tensor x = Tensor::of<float>({0, 1, 0, 1, 1});
  EXPECT_EQ(list(nonzero_static(x, 2)), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(list(nonzero_static(x, 5, 99)), (std::vector<int64_t>{1, 3, 4, 99, 99}));
  EXPECT_EQ(nonzero_static(x, 0).numel(), 0);
  try {
    nonzero_static(x, -2);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("size is -2"), std::string::npos) << e.what();
  }
}

TEST(MaskedSelect, TakesBroadcastElementsInOrder) {
  const Tensor x = Tensor::of<int64_t>({1, 2, 3}), rows = Tensor::of<bool>({true, false}).view_as({2, 1}, {1, 1}, 0);
  EXPECT_EQ(list(masked_select(x, rows)), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(list(masked_select(x, Tensor::of<bool>({true, false, true}))), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(masked_select(x, Tensor::scalar(false)).extents(), (Extents{0}));
}

TEST(MaskedSelect, WantsBooleansThatBroadcast) {
  const Tensor x = Tensor::of<float>({1, 2, 3});
  EXPECT_THROW(masked_select(x, x), UsageError);
  EXPECT_THROW(masked_select(x, Tensor::of<bool>({true, false})), UsageError);
}

}  // namespace
}  // namespace tutti
