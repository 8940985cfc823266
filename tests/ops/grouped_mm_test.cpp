#include "tutti/ops/grouped_mm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;

void expect_zeros(const Tensor& x) {
  const Tensor dense = to_contiguous(x);
  for (int64_t i = 0; i < dense.numel(); ++i) EXPECT_EQ(facets::read_double(dense, i), 0.0) << i;
}

// ---- rows and columns: the bits of matmul() of each group
// ------------------------------------------------------------

struct Case {
  const char* name;
  std::vector<int64_t> ends;
  int64_t rows, k, n;
  DType dtype;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class GroupedRows : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(, GroupedRows,
                         ::testing::Values(Case{"f32", {3, 3, 10, 27}, 27, 301, 37, DType::f32},
                                           Case{"f32_rest", {0, 1, 1, 9}, 20, 128, 8, DType::f32},
                                           Case{"f32_one", {5}, 5, 17, 9, DType::f32},
                                           Case{"f32_large", {200, 200, 201, 407}, 410, 300, 130, DType::f32},
                                           Case{"bf16", {7, 7, 30}, 33, 200, 19, DType::bf16},
                                           Case{"f16", {1, 2, 3}, 3, 40, 3, DType::f16},
                                           Case{"f64", {4, 4, 11}, 12, 150, 5, DType::f64}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GroupedRows, HaveTheBitsOfMatmulOfTheirGroup) {
  const Case& c = GetParam();
  const int64_t groups = static_cast<int64_t>(c.ends.size());
  const Tensor a = sample_tensor(1, {c.rows, c.k}, c.dtype);
  const Tensor weight = sample_tensor(2, {groups, c.n, c.k}, c.dtype);  // as a linear layer has it
  const Tensor dense = sample_tensor(3, {groups, c.k, c.n}, c.dtype);
  for (const Tensor& b : {dense, transpose(weight, -1, -2)}) {
    const Tensor y = grouped_mm(a, b, Tensor::of(c.ends));
    const Tensor z = grouped_mm(transpose(b, -1, -2), transpose(a, 0, 1), Tensor::of(c.ends));
    int64_t begin = 0;
    for (int64_t g = 0; g < groups; begin = c.ends[static_cast<size_t>(g++)]) {
      const int64_t size = c.ends[static_cast<size_t>(g)] - begin;
      const Tensor part = matmul(narrow(a, 0, begin, size), select(b, 0, g));
      expect_same_bits(narrow(y, 0, begin, size), part, fmt::format("rows of group {}", g));
      expect_same_bits(narrow(z, 1, begin, size), transpose(part, 0, 1), fmt::format("columns of group {}", g));
    }
    expect_zeros(narrow(y, 0, begin, c.rows - begin));
    expect_zeros(narrow(z, 1, begin, c.rows - begin));
  }
}

TEST(GroupedMm, LeavesNothingUninitialisedAndReadsNoRowOfNoGroup) {
  Tensor a = full({6, 4}, 1.0), y;
  for (int64_t i = 2 * 4; i < 6 * 4; ++i) a.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
  const Tensor b = ones({3, 4, 5}), offsets = Tensor::of<int32_t>({0, 2, 2});
  y = grouped_mm(a, b, offsets);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(y.data<float>()[i], i < 10 ? 4.0f : 0.0f) << i;
  const Tensor w = grouped_mm(transpose(a, 0, 1), a, offsets);
  expect_zeros(select(w, 0, 0));
  expect_zeros(select(w, 0, 2));
  EXPECT_EQ(select(w, 0, 1).data<float>()[5], 2.0f);
}

TEST(GroupedMm, TakesSizesOfZero) {
  EXPECT_EQ(grouped_mm(zeros({0, 4}), zeros({2, 4, 3}), Tensor::of<int64_t>({0, 0})).extents(), (Extents{0, 3}));
  EXPECT_EQ(grouped_mm(zeros({3, 4}), zeros({1, 4, 0}), Tensor::of<int64_t>({2})).extents(), (Extents{3, 0}));
  expect_zeros(grouped_mm(zeros({3, 0}), zeros({1, 0, 2}), Tensor::of<int64_t>({2})));
  expect_zeros(grouped_mm(full({3, 4}, 7.0), zeros({0, 4, 2}), Tensor::of<int64_t>({})));
  EXPECT_EQ(grouped_mm(zeros({4, 3}), zeros({3, 2}), Tensor::of<int64_t>({})).extents(), (Extents{0, 4, 2}));
}

TEST(GroupedMm, TakesStridedOperands) {
  const Tensor a = sample_tensor(1, {11, 7}), b = sample_tensor(2, {3, 7, 5}),
               offsets = Tensor::of<int64_t>({2, 9, 10});
  expect_same_bits(grouped_mm(facets::strided_copy(a), facets::strided_copy(b), facets::strided_copy(offsets)),
                   grouped_mm(a, b, offsets), "strided operands");
}

TEST(GroupedMm, OfEqualGroupsIsBmm) {
  const Tensor a = sample_tensor(1, {3, 5, 200}), b = sample_tensor(2, {3, 200, 9});
  expect_same_bits(grouped_mm(a, b), bmm(a, b), "grouped_mm of batches");
  EXPECT_EQ(grouped_mm(zeros({2, 0, 3}), zeros({2, 3, 4})).extents(), (Extents{2, 0, 4}));
}

// ---- contraction
// ------------------------------------------------------------------------------------------------------

TEST(GroupedContraction, WithoutPositionsIsTheGradientOfALinearLayerOverTheGroup) {
  const Tensor x = sample_tensor(1, {700, 13}, DType::bf16), g = sample_tensor(2, {700, 21}, DType::bf16);
  const std::vector<int64_t> ends = {0, 333, 340, 699};
  const Tensor dw = grouped_mm(transpose(x, 0, 1), g, Tensor::of(ends), {.out_dtype = DType::f32});
  int64_t begin = 0;
  for (size_t e = 0; e < ends.size(); begin = ends[e++]) {
    const int64_t size = ends[e] - begin;
    expect_same_bits(select(dw, 0, static_cast<int64_t>(e)),
                     matmul(transpose(narrow(x, 0, begin, size), 0, 1), narrow(g, 0, begin, size),
                            {.out_dtype = DType::f32, .axis = ContractionAxis::tokens}),
                     fmt::format("gradient of group {}", e));
  }
}

// Element (i, j) by the definition of the contract: a chain in each range of positions, ranges joined by halving their
// number; absent: nothing stood there.
struct Definition {
  const Tensor &x, &g;
  const std::vector<int64_t>& positions;
  int64_t grain, i, j;

  std::optional<float> sum(int64_t begin, int64_t end, int64_t first, int64_t last) const {
    if (last - first > 1) {
      const int64_t middle = first + (last - first + 1) / 2;
      const auto left = sum(begin, end, first, middle), right = sum(begin, end, middle, last);
      return left && right ? *left + *right : left ? left : right;
    }
    std::optional<float> chain;
    for (int64_t r = begin; r < end; ++r) {
      if (positions[static_cast<size_t>(r)] / grain != first) continue;
      chain = std::fma(x.data<float>()[r * x.extents()[1] + i], g.data<float>()[r * g.extents()[1] + j],
                       chain.value_or(-0.0f));
    }
    return chain;
  }
};

// Tokens of each of `experts` groups, in order, some tokens in several.
struct Routed {
  std::vector<int64_t> ends, tokens;
};
Routed route(int64_t tokens, int64_t experts, uint64_t seed) {
  Routed routed;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t t = 0; t < tokens; ++t) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      if (e != 1 && seed >> 60 < 5) routed.tokens.push_back(t);  // expert 1 has none
    }
    routed.ends.push_back(static_cast<int64_t>(routed.tokens.size()));
  }
  return routed;
}

TEST(GroupedContraction, WithPositionsFollowsRangesOfTokens) {
  for (const int64_t grain : {1, 8, 128}) {
    const TokenGrainScope scope(grain);
    const Routed routed = route(317, 5, 9);
    const int64_t rows = static_cast<int64_t>(routed.tokens.size());
    const Tensor x = sample_tensor(1, {rows, 9}), g = sample_tensor(2, {rows, 6});
    const Tensor dw = grouped_mm(transpose(x, 0, 1), g, Tensor::of(routed.ends),
                                 {.positions = Tensor::of(routed.tokens), .position_count = 317});
    for (int64_t e = 0, begin = 0; e < 5; begin = routed.ends[static_cast<size_t>(e++)]) {
      for (int64_t i = 0; i < 9; ++i) {
        for (int64_t j = 0; j < 6; ++j) {
          const Definition definition{x, g, routed.tokens, grain, i, j};
          const float expected =
              definition.sum(begin, routed.ends[static_cast<size_t>(e)], 0, (317 + grain - 1) / grain).value_or(-0.0f);
          const float actual = dw.data<float>()[(e * 9 + i) * 6 + j];
          ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected))
              << "grain " << grain << " [" << e << ", " << i << ", " << j << "]";
        }
      }
    }
  }
}

// Two holders of half of the positions each, with half of position_count: their sums add up to the bits of one holder.
TEST(GroupedContraction, IsCutAtABorderOfPositions) {
  const TokenGrainScope scope(16);
  const int64_t tokens = 256, experts = 4;
  const Routed routed = route(tokens, experts, 3);
  const int64_t rows = static_cast<int64_t>(routed.tokens.size());
  const Tensor x = sample_tensor(1, {rows, 10}), g = sample_tensor(2, {rows, 17});
  const Tensor whole = grouped_mm(transpose(x, 0, 1), g, Tensor::of(routed.ends),
                                  {.positions = Tensor::of(routed.tokens), .position_count = tokens});
  Tensor halves[2];
  for (int64_t half = 0; half < 2; ++half) {
    std::vector<int64_t> ends, positions, picked;
    for (int64_t e = 0, begin = 0; e < experts; begin = routed.ends[static_cast<size_t>(e++)]) {
      for (int64_t r = begin; r < routed.ends[static_cast<size_t>(e)]; ++r) {
        const int64_t position = routed.tokens[static_cast<size_t>(r)] - half * tokens / 2;
        if (position < 0 || position >= tokens / 2) continue;
        picked.push_back(r);
        positions.push_back(position);
      }
      ends.push_back(static_cast<int64_t>(picked.size()));
    }
    const auto rows_of = [&](const Tensor& t) {
      Tensor part = Tensor::empty({static_cast<int64_t>(picked.size()), t.extents()[1]});
      for (size_t i = 0; i < picked.size(); ++i)
        std::memcpy(part.data<float>() + static_cast<int64_t>(i) * t.extents()[1],
                    t.data<float>() + picked[i] * t.extents()[1], static_cast<size_t>(t.extents()[1]) * sizeof(float));
      return part;
    };
    halves[half] = grouped_mm(transpose(rows_of(x), 0, 1), rows_of(g), Tensor::of(ends),
                              {.positions = Tensor::of(positions), .position_count = tokens / 2});
  }
  for (int64_t i = 0; i < whole.numel(); ++i)
    ASSERT_EQ(halves[0].data<float>()[i] + halves[1].data<float>()[i], whole.data<float>()[i]) << i;
}

TEST(GroupedContraction, HasTheSameBitsOnAnyNumberOfThreads) {
  const Routed routed = route(1500, 6, 5);
  const int64_t rows = static_cast<int64_t>(routed.tokens.size());
  const Tensor x = sample_tensor(1, {rows, 96}), g = sample_tensor(2, {rows, 130}), offsets = Tensor::of(routed.ends);
  const GroupedMmOptions options{.positions = Tensor::of(routed.tokens), .position_count = 1500};
  RankContext& context = RankContext::current();
  const auto on = [&](int threads) {
    context.set_threads(threads);
    return grouped_mm(transpose(x, 0, 1), g, offsets, options);
  };
  const Tensor one = on(1), three = on(3);
  context.set_threads(0);
  expect_same_bits(one, three, "one thread and three");
}

// ---- errors
// -----------------------------------------------------------------------------------------------------------

TEST(GroupedMmErrors, NameTheGroupAndTheValues) {
  const Tensor a = zeros({9, 4}), b = zeros({3, 4, 5});
  const auto with = [&](std::vector<int64_t> ends) { return message_of([&] { grouped_mm(a, b, Tensor::of(ends)); }); };
  const std::string rule =
      "; offsets are cumulative ends, which do not decrease: 0 to 9 for a [9, 4] f32 cpu and b [3, 4, 5] f32 cpu";
  EXPECT_EQ(with({-1, 2, 3}), "grouped_mm: group 0 ends at -1, which is negative" + rule);
  EXPECT_EQ(with({4, 2, 3}), "grouped_mm: group 1 ends at 2, before group 0, which ends at 4" + rule);
  EXPECT_EQ(with({4, 5, 10}), "grouped_mm: group 2 ends at 10, beyond the 9 elements of the ragged dim" + rule);
  EXPECT_EQ(with({4, 4, std::numeric_limits<int64_t>::max()}),
            "grouped_mm: group 2 ends at 9223372036854775807, beyond the 9 elements of the ragged dim" + rule);
  EXPECT_EQ(with({4, 4, std::numeric_limits<int64_t>::min()}),
            "grouped_mm: group 2 ends at -9223372036854775808, before group 1, which ends at 4" + rule);
  EXPECT_EQ(with({4, 5}),
            "grouped_mm: 2 offsets for 3 groups: a is [9, 4], b is [3, 4, 5]; give the end of each group");
}

TEST(GroupedMmErrors, NameTheElementWhosePositionIsWrong) {
  const Tensor a = zeros({4, 3}), b = zeros({2, 3, 5}), offsets = Tensor::of<int64_t>({1, 4});
  const auto with = [&](std::vector<int64_t> positions, int64_t count) {
    return message_of(
        [&] { grouped_mm(a, b, offsets, {.positions = Tensor::of(positions), .position_count = count}); });
  };
  EXPECT_EQ(with({5, 0, 5, 6}, 7), "no error");
  EXPECT_EQ(with({5, 0, 7, 6}, 7),
            "grouped_mm: element 1 of group 1 stands at position 7; legal: 0 to 6, as position_count is 7");
  EXPECT_EQ(with({-1, 0, 5, 6}, 7),
            "grouped_mm: element 0 of group 0 stands at position -1; legal: 0 to 6, as position_count is 7");
  EXPECT_EQ(with({5, 3, 2, 6}, 7),
            "grouped_mm: element 1 of group 1 stands at position 2, the one before it at 3; sort the elements of a "
            "group by position");
  EXPECT_EQ(with({5, 0, 5}, 7),
            "grouped_mm: the positions are [3], a is [4, 3], b is [2, 3, 5]; expected one for each of 4 elements of "
            "the ragged dim");
  EXPECT_EQ(with({5, 0, 5, 6}, 0),
            "grouped_mm: position_count is 0; with positions it is the number of token positions of the whole batch");
}

TEST(GroupedMmErrors, SaySizesAndDtypes) {
  const Tensor offsets = Tensor::of<int64_t>({1, 4});
  EXPECT_EQ(message_of([&] { grouped_mm(zeros({4, 3}), zeros({2, 4, 5}), offsets); }),
            "grouped_mm: inner sizes differ: a is [4, 3], b is [2, 4, 5]; expected b.size(-2) == 3");
  EXPECT_EQ(message_of([&] { grouped_mm(zeros({2, 4, 3}), zeros({2, 3, 5}), offsets); }),
            "grouped_mm: a is [2, 4, 3], b is [2, 3, 5]; with offsets expected [T, k] x [G, k, n], [G, m, k] x [k, T] "
            "or [m, T] x [T, n]. "
            "Two 3-D operands take no offsets");
  EXPECT_EQ(message_of([&] { grouped_mm(zeros({4, 3}, DType::i32), zeros({2, 3, 5}), offsets); }),
            "grouped_mm: needs float operands (f64, f32, bf16, f16): a is [4, 3] i32 cpu, b is [2, 3, 5] f32 cpu; "
            "cast() them");
  EXPECT_EQ(message_of([&] { grouped_mm(zeros({4, 3}), zeros({2, 3, 5}), zeros({2})); }),
            "grouped_mm: the indices are [2] f32 cpu; expected i64 or i32");
  EXPECT_EQ(message_of([&] { grouped_mm(zeros({4, 3}), zeros({2, 3, 5}), zeros({2, 1}, DType::i64)); }),
            "grouped_mm: the offsets are [2, 1]; expected one dim, the end of each group");
  EXPECT_EQ(message_of([&] { grouped_mm(zeros({2, 4, 3}), zeros({3, 3, 5})); }),
            "grouped_mm: without offsets it needs [G, m, k] and [G, k, n] with one number of groups: a is [2, 4, 3], b "
            "is [3, 3, 5]");
}

}  // namespace
}  // namespace tutti
