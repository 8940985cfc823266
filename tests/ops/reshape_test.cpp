#include "tutti/ops/reshape.h"

#include <gtest/gtest.h>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

using facets::sample_tensor;

TEST(View, SharesTheStorage) {
  const Tensor x = sample_tensor(1, {3, 4});
  const Tensor y = view(x, {2, -1});
  EXPECT_EQ(y.extents(), (Extents{2, 6}));
  EXPECT_EQ(y.raw_data(), x.raw_data());
}

TEST(View, OfATransposedTensorIsRefusedWithTheWayOut) {
  const Tensor x = t(sample_tensor(1, {3, 4}));
  try {
    view(x, {12});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "view: [4, 3] f32 cpu with strides [1, 4] cannot be seen as [12] without a copy; use reshape, or "
                 "contiguous first");
  }
}

TEST(View, SplitsAStridedDimThatReshapeWouldCopyForNothing) {
  const Tensor x = t(sample_tensor(1, {6, 4}));
  EXPECT_EQ(view(x, {2, 2, 6}).strides(), (Extents{2, 1, 4}));
}

TEST(Reshape, CopiesOnlyWhenItMust) {
  const Tensor x = sample_tensor(1, {3, 4});
  EXPECT_EQ(reshape(x, {4, 3}).storage().get(), x.storage().get());
  const Tensor y = reshape(t(x), {12});
  EXPECT_NE(y.storage().get(), x.storage().get());
  EXPECT_EQ(y.data<float>()[1], x.data<float>()[4]);
}

TEST(Reshape, RefusesSizesThatHoldAnotherNumberOfElements) {
  EXPECT_THROW(reshape(sample_tensor(1, {3, 4}), {5, -1}), UsageError);
  EXPECT_THROW(reshape(sample_tensor(1, {3, 4}), {13}), UsageError);
  EXPECT_THROW(reshape(sample_tensor(1, {3, 4}), {-1, -1}), UsageError);
  EXPECT_THROW(reshape(sample_tensor(1, {0, 4}), {0, -1}), UsageError);
}

TEST(Flatten, MergesTheNamedDims) {
  EXPECT_EQ(flatten(sample_tensor(1, {2, 3, 4}), 1).extents(), (Extents{2, 12}));
  EXPECT_EQ(flatten(sample_tensor(1, {})).extents(), (Extents{1}));
  EXPECT_EQ(unflatten(sample_tensor(1, {2, 12}), 1, {3, -1}).extents(), (Extents{2, 3, 4}));
}

TEST(Permute, RefusesOrdersThatAreNoPermutation) {
  EXPECT_THROW(permute(sample_tensor(1, {2, 3}), {0, 0}), UsageError);
  EXPECT_THROW(permute(sample_tensor(1, {2, 3}), {0}), UsageError);
  EXPECT_THROW(t(sample_tensor(1, {2})), UsageError);
}

TEST(Squeeze, KeepsDimsThatAreLargerThanOne) {
  EXPECT_EQ(squeeze(sample_tensor(1, {1, 3, 1})).extents(), (Extents{3}));
  EXPECT_EQ(squeeze(sample_tensor(1, {1, 3, 1}), 1).extents(), (Extents{1, 3, 1}));
  EXPECT_EQ(unsqueeze(sample_tensor(1, {3}), -1).extents(), (Extents{3, 1}));
  EXPECT_TRUE(unsqueeze(sample_tensor(1, {3, 2}), 1).is_contiguous());
}

}  // namespace
}  // namespace tutti
