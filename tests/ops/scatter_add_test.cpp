// scatter_add against a loop in the order that is promised: ascending along the dim, for each target by itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

Tensor definition(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  const Tensor sums = clone(contiguous(x));
  facets::for_each_index(index.extents(), [&](const Extents& at) {
    Extents target = at;
    target[static_cast<size_t>(dim)] = facets::read_int64(index, facets::offset_at(index, at));
    float& sum = sums.data<float>()[facets::offset_at(sums, target)];
    sum += static_cast<float>(facets::read_double(source, facets::offset_at(source, at)));
  });
  return sums;
}

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& where) {
  ASSERT_EQ(a.extents(), b.extents()) << where;
  EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())), 0) << where;
}

struct Case {
  Extents x, index;
  int64_t dim;
};
const Case kCases[] = {{{50}, {1000}, 0},
                       {{7}, {3}, 0},
                       {{40, 33}, {900, 33}, 0},
                       {{40, 33}, {900, 30}, 0},
                       {{5, 700}, {5, 40}, 1},
                       {{5, 6, 7}, {80, 5, 6}, 0},
                       {{5, 6, 7}, {80, 6, 7}, 0},
                       {{4, 9, 30}, {3, 50, 30}, 1},
                       {{4, 9, 3, 11}, {3, 50, 2, 10}, 1},
                       {{3, 4}, {0, 4}, 0},
                       {{2, 1}, {70, 1}, 0}};

TEST(ScatterAdd, AddsInTheOrderOfTheDim) {
  for (const Case& c : kCases) {
    const double n = static_cast<double>(c.x[static_cast<size_t>(c.dim)]);
    const Tensor x = facets::sample_tensor(1, c.x), source = facets::sample_tensor(2, c.index);
    for (const DType dtype : {DType::i64, DType::i32}) {
      const Tensor index = facets::sample_tensor(3, c.index, dtype, 0, n);
      const Tensor expected = definition(x, c.dim, index, source);
      const std::string where =
          fmt::format("{} {} {} along {}", to_string(c.x), to_string(c.index), name_of(dtype), c.dim);
      expect_same_bits(scatter_add(x, c.dim, index, source), expected, where);
      expect_same_bits(
          scatter_add(facets::strided_copy(x), c.dim, facets::strided_copy(index), facets::strided_copy(source)),
          expected, where + ", strided");
    }
  }
}

TEST(ScatterAdd, ReadsViews) {
  const Tensor x = facets::sample_tensor(1, {20, 31}), source = facets::sample_tensor(2, {31, 64});
  const Tensor rows = facets::sample_tensor(3, {64, 1}, DType::i64, 0, 20);
  const Tensor index = expand(rows, {64, 31}), turned = transpose(source, 0, 1);
  expect_same_bits(scatter_add(x, 0, index, turned), definition(x, 0, index, turned), "an index for each row");
}

TEST(ScatterAdd, HasTheBitsOfOneThread) {
  RankContext& context = RankContext::current();
  const Tensor x = facets::sample_tensor(1, {40, 501}), index = facets::sample_tensor(2, {300, 501}, DType::i64, 0, 40),
               source = facets::sample_tensor(3, {300, 501});
  context.set_threads(1);
  const Tensor alone = scatter_add(x, 0, index, source);
  for (const int threads : {2, 3, 7}) {
    context.set_threads(threads);
    expect_same_bits(scatter_add(x, 0, index, source), alone, fmt::format("{} threads", threads));
    EXPECT_THROW(scatter_add(x, 0, facets::sample_tensor(2, {300, 501}, DType::i64, 0, 42), source), UsageError);
  }
  context.set_threads(0);
}

TEST(ScatterAdd, AddsNarrowElementsWideAndRoundsOnce) {
  const Tensor x = Tensor::of<float>({256.0f, 1.0f}), ones = Tensor::of<float>({1, 1, 1, NAN}),
               index = Tensor::of<int64_t>({0, 0, 0, 1});
  const auto narrow = [](const Tensor& t) {
    const Tensor y = Tensor::empty(t.extents(), DType::bf16);
    for (int64_t i = 0; i < t.numel(); ++i) facets::write_double(y, i, t.data<float>()[i]);
    return y;
  };
  const Tensor y = scatter_add(narrow(x), 0, index, narrow(ones));
  EXPECT_EQ(facets::read_double(y, 0), 260.0);  // 259 rounded once; one by one 256 + 1 stays 256
  EXPECT_TRUE(std::isnan(facets::read_double(y, 1)));
}

}  // namespace
}  // namespace tutti
