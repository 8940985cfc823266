// The decision against what it means: the addresses of all elements, one by one.
#include "tutti/tensor/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tutti {
namespace {

bool has_equal_addresses(const Extents& sizes, const Extents& strides) {
  std::set<int64_t> seen;
  const int64_t count = numel_of(sizes);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, address = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      address += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    if (!seen.insert(address).second) return true;
  }
  return false;
}

TEST(Overlap, AgreesWithTheAddressesOfAllElements) {
  std::mt19937_64 random(1);
  int64_t overlapping = 0, apart = 0, interleaved = 0;
  for (int round = 0; round < 60000; ++round) {
    const size_t ndim = random() % 6;
    const int64_t widest = random() % 2 == 0 ? 9 : 60;
    Extents sizes, strides;
    int64_t span = 0;
    for (size_t d = 0; d < ndim; ++d) {
      sizes.push_back(random() % 20 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 6));
      const int64_t stride =
          random() % 25 == 0 ? 0 : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(widest));
      strides.push_back(random() % 3 == 0 ? -stride : stride);
      span += std::max<int64_t>(sizes[d] - 1, 0) * stride;
    }
    const bool expected = has_equal_addresses(sizes, strides);
    ASSERT_EQ(overlaps_itself(sizes, strides), expected) << to_string(sizes) << " strides " << to_string(strides);
    (expected ? overlapping : apart) += 1;
    interleaved += !expected && ndim > 1 && numel_of(sizes) > 1 && span + 1 > numel_of(sizes);
  }
  EXPECT_GT(overlapping, 5000);
  EXPECT_GT(apart, 5000);
  EXPECT_GT(interleaved, 1000);  // neither dense nor overlapping
}

TEST(Overlap, ViewsThatPeopleMake) {
  EXPECT_FALSE(overlaps_itself({}, {}));
  EXPECT_FALSE(overlaps_itself({1, 1}, {0, 0}));
  EXPECT_FALSE(overlaps_itself({0, 5}, {0, 0}));   // without elements
  EXPECT_FALSE(overlaps_itself({4, 5}, {1, 4}));   // transposed
  EXPECT_FALSE(overlaps_itself({4, 5}, {-5, 1}));  // backwards
  EXPECT_FALSE(overlaps_itself({3, 4}, {8, 2}));   // every second element
  EXPECT_TRUE(overlaps_itself({3, 4}, {2, 1}));    // windows of 4, a step of 2 apart
  EXPECT_FALSE(overlaps_itself({3, 2}, {2, 1}));
  EXPECT_TRUE(overlaps_itself({5}, {0}));
  EXPECT_TRUE(overlaps_itself({2, 3}, {3, -3}));
  EXPECT_FALSE(overlaps_itself({3, 2}, {2, 3}));  // 0 2 4 and 3 5 7
  EXPECT_TRUE(overlaps_itself({4, 3}, {2, 3}));   // 6 twice
}

TEST(Overlap, LargeStridesTakeNoLongerThanSmallOnes) {
  const int64_t million = 1'000'000;
  EXPECT_FALSE(overlaps_itself({million, million}, {1'000'003, 1'000'033}));  // two primes
  EXPECT_TRUE(overlaps_itself({1'000'034, 1'000'004}, {1'000'003, 1'000'033}));
  EXPECT_FALSE(overlaps_itself({million, million, 2}, {2'000'006, 2'000'066, 1}));
  EXPECT_TRUE(overlaps_itself({million, 3, 2}, {3, 1, 1'500'000}));
}

TEST(Overlap, RefusesToWriteNamingTensorAndStrides) {
  const Tensor x = Tensor::empty({8}, DType::f32), windows = x.view_as({3, 4}, {2, 1}, 0);
  try {
    refuse_overlap("here", windows);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "here: the tensor [3, 4] f32 cpu with strides [2, 1] overlaps itself: some of its elements are the "
                 "same memory and cannot "
                 "be written one by one; clone() it");
  }
  EXPECT_THROW(refuse_overlap("here", x.view_as({2, 8}, {0, 1}, 0)), UsageError);
  refuse_overlap("here", x.view_as({3, 4}, {0, 1}, 0).view_as({0, 4}, {0, 1}, 0));
  refuse_overlap("here", x.view_as({2, 4}, {4, 1}, 0));
}

}  // namespace
}  // namespace tutti
