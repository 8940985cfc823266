// What is special about median, nanmedian, kthvalue and mode: ties, NaN, extremes of integers, sizes, messages. Their
// results on common input are compared with PyTorch in tests/autograd/pytorch_results_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/message_of.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/kthvalue.h"
#include "tutti/ops/median.h"
#include "tutti/ops/mode.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

int64_t index_of(const SortResult& r) { return r.indices.item_int(); }

TEST(Median, IsTheLowerOfTwoInTheMiddle) {
  EXPECT_EQ(median(Tensor::of<float>({4, 1, 3, 2})).item(), 2);
  EXPECT_EQ(index_of(median(Tensor::of<float>({4, 1, 3, 2}), 0)), 3);
}

TEST(Median, HasTheLowestIndexOfEqualElements) {
  const Tensor x = Tensor::of<float>({5, 2, 2, 1, 2});
  EXPECT_EQ(index_of(median(x, 0)), 1);
  EXPECT_EQ(index_of(kthvalue(x, 4)), 1);
  EXPECT_EQ(index_of(mode(x)), 1);
  const SortResult zero = median(Tensor::of<float>({1, -0.0f, 0.0f, 0.0f, -1}), 0);
  EXPECT_EQ(index_of(zero), 1);
  EXPECT_TRUE(std::signbit(*zero.values.data<float>()));
}

TEST(Median, OfNanIsTheFirstNan) {
  const Tensor x = Tensor::of<float>({3, kNan, 1, 2, kNan});
  EXPECT_EQ(index_of(median(x, 0)), 1);
  EXPECT_TRUE(std::isnan(median(x).item()));
  EXPECT_EQ(index_of(nanmedian(x, 0)), 3);
  EXPECT_EQ(nanmedian(x).item(), 2);
  EXPECT_EQ(index_of(nanmedian(Tensor::of<float>({kNan, kNan}), 0)), 0);
  EXPECT_EQ(index_of(kthvalue(x, 3)), 0);
  EXPECT_EQ(index_of(kthvalue(x, 4)), 1);
}

TEST(Median, OfTheWholeRangeOfIntegers) {
  const Tensor x = Tensor::of<int64_t>({kMost, kLeast, kMost - 1, kMost, kLeast + 1});
  EXPECT_EQ(median(x).item_int(), kMost - 1);
  EXPECT_EQ(nanmedian(x).item_int(), kMost - 1);
  EXPECT_EQ(kthvalue(x, 5).values.item_int(), kMost);
  EXPECT_EQ(kthvalue(x, 1).values.item_int(), kLeast);
  EXPECT_EQ(mode(x).values.item_int(), kMost);
  const Tensor narrow =
      Tensor::of<int32_t>({std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::max(), -1});
  EXPECT_EQ(mode(narrow).values.item_int(), std::numeric_limits<int32_t>::max());
}

TEST(Median, OfNoElements) {
  EXPECT_TRUE(std::isnan(median(zeros({0, 3})).item()));
  EXPECT_TRUE(std::isnan(nanmedian(zeros({0}, DType::bf16)).item()));
  EXPECT_EQ(median(zeros({0, 3}), 1, true).values.extents(), (Extents{0, 1}));
  EXPECT_EQ(message_of([] { median(zeros({0}, DType::i64)); }),
            "median: x is [0] i64 cpu, and integers of no elements have no median; give a tensor that is not empty, or "
            "a float one for NaN");
  EXPECT_EQ(message_of([] { nanmedian(zeros({3, 0}), -1); }),
            "nanmedian_dim: dim 1 of x, which is [3, 0] f32 cpu, has no elements to choose from; give a dim that is "
            "not empty");
  EXPECT_EQ(message_of([] { mode(zeros({0})); }),
            "mode: dim 0 of x, which is [0] f32 cpu, has no elements to choose from; give a dim that is not empty");
}

TEST(Kthvalue, RefusesRanksThatAreNotThere) {
  const Tensor x = Tensor::of<float>({1, 2});
  EXPECT_EQ(message_of([&] { kthvalue(x, 3); }),
            "kthvalue: k is 3, dim 0 of [2] f32 cpu has 2 elements; expected 1 to the number of elements");
  EXPECT_THROW(kthvalue(x, 0), UsageError);
  EXPECT_THROW(kthvalue(x, 1, 1), UsageError);
  EXPECT_EQ(kthvalue(full({}, 5.0), 1).values.item(), 5);
  EXPECT_THROW(kthvalue(full({}, 5.0), 2), UsageError);
}

TEST(Mode, PrefersTheSmallestValueAndThenTheLowestIndex) {
  const SortResult r = mode(Tensor::of<int64_t>({3, 1, 3, 1, 2}));
  EXPECT_EQ(r.values.item_int(), 1);
  EXPECT_EQ(index_of(r), 1);
}

TEST(Mode, CountsNoNanTwice) {
  EXPECT_EQ(mode(Tensor::of<float>({kNan, kNan, 2, 1})).values.item(), 1);
  EXPECT_EQ(index_of(mode(Tensor::of<float>({kNan, kNan}))), 0);
}

TEST(Selection, HasTheSameBitsOnAnyNumberOfThreads) {
  const Tensor x = facets::sample_tensor(1, {300, 501}, DType::bf16);
  RankContext& context = RankContext::current();
  const auto run = [&](int threads) {
    context.set_threads(threads);
    return std::vector<SortResult>{median(x, 1), nanmedian(x, 0), kthvalue(x, 77, 0), mode(x, 1)};
  };
  const std::vector<SortResult> one = run(1), four = run(4);
  context.set_threads(0);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(
        std::memcmp(one[i].values.raw_data(), four[i].values.raw_data(), static_cast<size_t>(one[i].values.nbytes())),
        0);
    EXPECT_EQ(std::memcmp(one[i].indices.raw_data(), four[i].indices.raw_data(),
                          static_cast<size_t>(one[i].indices.nbytes())),
              0);
  }
}

}  // namespace
}  // namespace tutti
