#include "tutti/ops/weight_only_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;

Tensor numbers(uint64_t seed, const Extents& sizes) { return sample_tensor(seed, sizes, DType::f32, -0.03, 0.05); }

// The numbers that codes of 4 bits stand for.
Tensor decoded(const CodedWeight& w) {
  const int64_t n = w.codes.extents()[0], k = w.codes.extents()[1] * 2, groups = w.scale.extents()[1];
  const Tensor all = Tensor::empty({n, k});
  for (int64_t j = 0; j < n; ++j)
    for (int64_t p = 0; p < k; ++p) {
      const int64_t byte = facets::read_int64(w.codes, j * (k / 2) + p / 2), g = j * groups + p / (k / groups);
      all.data<float>()[j * k + p] = std::fma(static_cast<float>(p % 2 ? byte / 16 : byte % 16),
                                              w.scale.data<float>()[g], w.minimum.data<float>()[g]);
    }
  return all;
}
CodedWeight groups_of(int64_t n, int64_t k, int64_t group) {
  return {sample_tensor(2, {n, k / 2}, DType::u8, 0, 256), numbers(3, {n, k / group}), numbers(4, {n, k / group})};
}

// matmul has the tree of N3 over the decoded weights.
TEST(WeightOnlyLinear, HasTheBitsOfDecodedWeights) {
  for (const int64_t m : {1, 2, 3, 4, 5, 17})
    for (const int64_t n : {1, 8, 16, 19, 40, 70}) {
      for (const int64_t k : {1, 7, 8, 129, 300, 1030}) {
        const Tensor x = sample_tensor(1, {m, k}), codes = sample_tensor(2, {n, k}, DType::i8, -128, 128);
        const Tensor scale = numbers(3, {n % 2 ? n : 1});
        expect_same_bits(weight_only_linear(x, {codes, scale}),
                         mul(matmul(x, transpose(cast(codes, DType::f32), 0, 1)), scale),
                         fmt::format("{} {} {}", m, n, k));
      }
      for (const auto& [k, group] : {std::pair<int64_t, int64_t>{8, 8}, {64, 32}, {384, 128}, {1056, 96}, {1064, 8}}) {
        const CodedWeight w = groups_of(n, k, group);
        const Tensor x = sample_tensor(1, {m, k});
        expect_same_bits(weight_only_linear(x, w), matmul(x, transpose(decoded(w), 0, 1)));
      }
    }
}

TEST(WeightOnlyLinear, DoesNotDependOnThreadsRowsOfXOrRowsOfW) {
  RankContext& context = RankContext::current();
  const Tensor x = sample_tensor(1, {21, 512});
  const CodedWeight w = groups_of(203, 512, 64);
  context.set_threads(1);
  const Tensor all = weight_only_linear(x, w);
  for (const int threads : {2, 4}) {
    context.set_threads(threads);
    expect_same_bits(weight_only_linear(x, w), all);
  }
  context.set_threads(0);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {3, 4}, {5, 16}, {4, 0}})
    expect_same_bits(weight_only_linear(narrow(x, 0, first, count), w), contiguous(narrow(all, 0, first, count)));
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 101}, {101, 102}, {203, 0}}) {
    const CodedWeight part{narrow(w.codes, 0, first, count), narrow(w.scale, 0, first, count),
                           narrow(w.minimum, 0, first, count)};
    expect_same_bits(weight_only_linear(x, part), contiguous(narrow(all, 1, first, count)));
  }
  const Tensor many = sample_tensor(5, {1100, 64});
  const CodedWeight small = groups_of(9, 64, 32);
  expect_same_bits(weight_only_linear(narrow(many, 0, 1020, 10), small),
                   contiguous(narrow(weight_only_linear(many, small), 0, 1020, 10)), "beyond the rows of one pass");
}

TEST(WeightOnlyLinear, TakesNarrowFloatsStridesAndLeadingDims) {
  const CodedWeight w = groups_of(11, 64, 32);
  const Tensor wide = sample_tensor(1, {6, 64}), y = weight_only_linear(wide, w);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = cast(wide, dtype), exact = weight_only_linear(cast(x, DType::f32), w);
    expect_same_bits(weight_only_linear(x, w, DType::f32), exact);
    expect_same_bits(weight_only_linear(x, w), cast(exact, dtype));
  }
  const CodedWeight strided{facets::strided_copy(w.codes), facets::strided_copy(w.scale),
                            facets::strided_copy(w.minimum)};
  expect_same_bits(weight_only_linear(facets::strided_copy(wide), strided), y);
  expect_same_bits(reshape(weight_only_linear(reshape(wide, {2, 3, 64}), w), {6, 11}), y);
  EXPECT_EQ(weight_only_linear(zeros({2, 3, 0}), {zeros({4, 0}, DType::i8), full({1}, 1.0)}).extents(),
            (Extents{2, 3, 4}));
}

// Rows of W that are part of longer ones stay where they are.
TEST(WeightOnlyLinear, RowsOfWeightsMayHaveGaps) {
  for (const int64_t m : {1, 3, 5, 71}) {
    const Tensor x = sample_tensor(1, {m, 136}), scale = numbers(3, {41});
    const Tensor bytes = narrow(sample_tensor(2, {41, 150}, DType::i8, -128, 128), 1, 3, 136);
    expect_same_bits(weight_only_linear(x, {bytes, scale}), weight_only_linear(x, {contiguous(bytes), scale}));
    const CodedWeight groups{narrow(sample_tensor(4, {41, 90}, DType::u8, 0, 256), 1, 5, 68), numbers(5, {41, 17}),
                             numbers(6, {41, 17})};
    expect_same_bits(weight_only_linear(x, groups),
                     weight_only_linear(x, {contiguous(groups.codes), groups.scale, groups.minimum}));
  }
}

TEST(WeightOnlyLinear, RowsWithoutElementsGiveZero) {
  for (const int64_t groups : {0, 3})
    expect_same_bits(
        weight_only_linear(zeros({2, 0}), {zeros({4, 0}, DType::u8), full({4, groups}, 7.0), full({4, groups}, -1.0)}),
        full({2, 4}, -0.0));
}

TEST(WeightOnlyLinear, SaysWhatIsWrong) {
  const Tensor codes = zeros({3, 8}, DType::u8);
  EXPECT_EQ(message_of([&] { weight_only_linear(zeros({2, 8}), {codes, zeros({3, 1}), zeros({3, 1})}); }),
            "weight_only_linear: x is [2, 8] f32 cpu; expected f32, bf16 or f16 [..., 16]");
  EXPECT_EQ(
      message_of([&] { weight_only_linear(zeros({2, 16}), {codes, zeros({3, 1})}); }),
      "weight_only_linear: the codes of 4 bits are [3, 8], their scales [3, 1] f32 cpu, their minima <undefined>; "
      "expected f32 [3, groups] twice");
  EXPECT_EQ(message_of([&] { weight_only_linear(zeros({2, 16}), {codes, zeros({3, 4}), zeros({3, 4})}); }),
            "weight_only_linear: 4 groups of rows of 16 elements; expected groups of a multiple of 8");
  EXPECT_EQ(message_of([&] { weight_only_linear(zeros({2, 8}), {zeros({3, 8}, DType::i8), zeros({2})}); }),
            "weight_only_linear: the scale of the weight is [2] f32 cpu; expected f32, one number or 3");
}

}  // namespace
}  // namespace tutti
