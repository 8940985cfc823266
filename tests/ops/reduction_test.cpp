#include "tutti/ops/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/sum_to.h"

namespace tutti {
namespace {

// One leaf: 16 lanes, lane j takes elements j, j + 16, ...; lanes combined by halving.
float leaf_sum(const float* x, int64_t n) {
  float lanes[16];
  for (float& lane : lanes) lane = -0.0f;
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += x[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// The tree of the numerics contract, N3.
float tree_sum(const float* x, int64_t n, int64_t leaf) {
  if (n <= leaf) return leaf_sum(x, n);
  const int64_t left = (n + 1) / 2;
  return tree_sum(x, left, leaf) + tree_sum(x + left, n - left, leaf);
}

TEST(Sum, FollowsTheHalvingTreeBitForBit) {
  for (const int64_t n : {1, 15, 16, 17, 300, 512, 513, 1000, 4097}) {
    for (const int64_t leaf : {0, 8, 128}) {
      const Tensor x = facets::sample_tensor(static_cast<uint64_t>(n), {n});
      const float expected = tree_sum(x.data<float>(), n, leaf == 0 ? 512 : leaf);
      const float actual = *sum(x, {.leaf = leaf}).data<float>();
      EXPECT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected)) << n << " elements, leaf " << leaf;
    }
  }
}

TEST(Sum, HasTheSameBitsAlongColumnsAndAlongRows) {
  const Tensor rows = facets::sample_tensor(1, {37, 1300});
  Tensor columns = Tensor::empty({1300, 37});
  copy_elements(columns, rows.view_as({1300, 37}, {1, 1300}, 0));
  const Tensor a = sum(rows, {.dims = {1}}), b = sum(columns, {.dims = {0}});
  for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(a.data<float>()[i], b.data<float>()[i]) << i;
}

TEST(Sum, OfIntegersIsI64) {
  EXPECT_EQ(sum(Tensor::of<uint8_t>(std::vector<uint8_t>(1000, 255))).item_int(), 255000);
  EXPECT_EQ(sum(Tensor::of<int32_t>({1, 2})).dtype(), DType::i64);
}

TEST(Sum, OfNarrowFloatsRoundsOnce) {
  // In bf16 steps the sum would stay at 256: 256 + 1 rounds to 256.
  Tensor x = Tensor::empty({512}, DType::bf16);
  for (int64_t i = 0; i < 512; ++i) x.data<bfloat16>()[i] = to_bfloat16(1.0f);
  EXPECT_EQ(sum(x).item(), 512.0);
  EXPECT_EQ(sum(x).dtype(), DType::bf16);
  EXPECT_EQ(sum(x, {.dtype = DType::f32}).dtype(), DType::f32);
}

TEST(Sum, OfNothingIsMinusZero) {
  const Tensor y = sum(Tensor::empty({0}));
  EXPECT_EQ(y.item(), 0.0);
  EXPECT_TRUE(std::signbit(y.item()));
}

TEST(Sum, RefusesAnIntegerResultOfFloats) {
  EXPECT_THROW(sum(Tensor::empty({2}), {.dtype = DType::i64}), UsageError);
  EXPECT_THROW(sum(Tensor::empty({2}), {.leaf = -1}), UsageError);
}

TEST(Extremes, OfNothingAreRefusedWithTheDim) {
  try {
    amax(Tensor::empty({3, 0}), {.dims = {1}});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("dim 1"), std::string::npos) << e.what();
  }
}

TEST(Argmax, OfAWholeTensorIsTheFlatPosition) {
  EXPECT_EQ(argmax(Tensor::of<float>({1, 2, 9, 3, 9, 0}, {2, 3})).item_int(), 2);
  EXPECT_EQ(argmin(Tensor::of<float>({1, 2, 9, 3, 9, 0}, {2, 3})).item_int(), 5);
}

TEST(Statistics, OfOneElementHaveNoSampleVariance) {
  EXPECT_TRUE(std::isnan(var(Tensor::of<float>({3.0f})).item()));
  EXPECT_EQ(var(Tensor::of<float>({3.0f}), {.correction = 0}).item(), 0.0);
}

TEST(Statistics, VarianceSurvivesALargeMean) {
  const Tensor x = Tensor::of<float>({10001, 10002, 10003, 10004});
  EXPECT_FLOAT_EQ(static_cast<float>(var(x).item()), 5.0f / 3.0f);
  EXPECT_FLOAT_EQ(static_cast<float>(stddev(x).item()), std::sqrt(5.0f / 3.0f));
}

TEST(SumTo, UndoesBroadcasting) {
  const Tensor x = facets::sample_tensor(1, {4, 5, 3});
  EXPECT_EQ(sum_to(x, {3}).sizes(), (Shape{3}));
  EXPECT_EQ(sum_to(x, {5, 1}).sizes(), (Shape{5, 1}));
  EXPECT_EQ(sum_to(x, {4, 1, 3}).sizes(), (Shape{4, 1, 3}));
  EXPECT_TRUE(sum_to(x, {4, 5, 3}).is_same(x));
  EXPECT_THROW(sum_to(x, {2}), UsageError);
}

TEST(SumTo, LeavesSumsOfNarrowFloatsInF32) {
  EXPECT_EQ(sum_to(facets::sample_tensor(1, {4, 5}, DType::bf16), {5}).dtype(), DType::f32);
}

TEST(SumTo, SumsTokensInLeavesOfTheGrain) {
  const Tensor x = facets::sample_tensor(2, {96, 1});
  const TokenGrainScope grain(24);
  const float expected = tree_sum(x.data<float>(), 96, 24);
  EXPECT_EQ(*sum_to(x, {1}).data<float>(), expected);
}

TEST(Scans, RunInOneChain) {
  const Tensor x = facets::sample_tensor(3, {100});
  const Tensor y = cumsum(x, 0);
  float chain = -0.0f;
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(y.data<float>()[i], chain += x.data<float>()[i]) << i;
}

TEST(Scans, KeepTheFirstOfEqualExtremes) {
  const auto [values, positions] = cummax(Tensor::of<float>({1, 3, 3, 2, 5}), 0);
  const int64_t expected[] = {0, 1, 1, 1, 4};
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(positions.data<int64_t>()[i], expected[i]) << i;
  EXPECT_EQ(values.data<float>()[3], 3.0f);
}

TEST(Reductions, OfNoElementsHaveTheIdentity) {
  for (const Extents& sizes : {Extents{0}, Extents{3, 0}, Extents{0, 4}, Extents{2, 0, 5}}) {
    const Tensor x = Tensor::empty(sizes);
    EXPECT_EQ(sum(x).item(), 0.0) << describe(x);
    EXPECT_EQ(prod(x).item(), 1.0) << describe(x);
  }
  const Tensor rows = sum(Tensor::empty({3, 0, 2}), {.dims = Dims{1, 2}});
  EXPECT_EQ(rows.numel(), 3);
  EXPECT_EQ(rows.data<float>()[2], 0.0f);
}

// Each reduction over one dim, as in PyTorch: op(x, dim), op(x, dim, keepdim).
TEST(ReductionOverOneDim, IsTheFormWithOptions) {
  const Tensor x = facets::sample_tensor(7, {3, 4, 5});
  const auto forms = [&](const char* name, auto reduce, auto with_options) {
    for (const int dim : {0, 1, -1}) {
      expect_same_bits(reduce(x, dim), with_options(x, dim, false), name);
      expect_same_bits(reduce(x, dim, true), with_options(x, dim, true), name);
    }
  };
#define FORMS(op, Options, member)                    \
  forms(                                              \
      #op, [](const auto&... a) { return op(a...); }, \
      [](const Tensor& t, int64_t dim, bool keepdim) { return op(t, Options{.member = {dim}, .keepdim = keepdim}); })
  FORMS(sum, ReduceOptions, dims);
  FORMS(prod, ReduceOptions, dims);
  FORMS(any, ReduceOptions, dims);
  FORMS(all, ReduceOptions, dims);
  FORMS(amax, ExtremeOptions, dims);
  FORMS(amin, ExtremeOptions, dims);
  FORMS(mean, MeanOptions, dims);
  FORMS(argmax, ArgOptions, dim);
  FORMS(argmin, ArgOptions, dim);
#undef FORMS
  expect_same_bits(var(x, 1), var(x, {.dims = {1}}), "var");
  expect_same_bits(stddev(x, -1), stddev(x, {.dims = {-1}}), "stddev");
  expect_same_bits(logsumexp(x, 1, true), unsqueeze(logsumexp(x, 1), 1), "logsumexp");
}

// What PyTorch's functions mean by a flag in the place of a dim, or by one after the dim of var, is something else.
template <class... Args>
concept Sums = requires(const Tensor& x, Args... args) { sum(x, args...); };
template <class... Args>
concept Varies = requires(const Tensor& x, Args... args) { var(x, args...); };
static_assert(Sums<int> && Sums<size_t, bool> && Sums<int64_t> && Sums<ReduceOptions> && !Sums<bool> && !Sums<double>);
static_assert(Varies<int> && !Varies<int, bool>);

TEST(ReductionOverOneDim, TakesAnyIntegerAndNamesOneThatIsNotThere) {
  const Tensor x = facets::sample_tensor(7, {3, 0, 5});
  EXPECT_EQ(sum(x, size_t{1}).extents(), (Extents{3, 5}));
  EXPECT_EQ(sum(x, short{-1}, true).extents(), (Extents{3, 0, 1}));
  EXPECT_EQ(sum(x).ndim(), 0);
  EXPECT_EQ(sum(x, {}).ndim(), 0) << "no options are the default ones, not dim 0";
  for (const auto& call : {+[](const Tensor& t) { sum(t, 3); }, +[](const Tensor& t) { amax(t, -4); },
                           +[](const Tensor& t) { mean(t, 3, true); }, +[](const Tensor& t) { argmin(t, 3); }})
    EXPECT_THROW(call(x), UsageError);
  EXPECT_NE(message_of([&] { amax(x, 1); }), "no error") << "a row without elements has no maximum";
}

}  // namespace
}  // namespace tutti
